"""The log in one SQLite file. Knows SQL and files, and nothing of tasks or of what events mean."""

from perdure.eventlog.sqlite.store import SqliteStore as SqliteStore
