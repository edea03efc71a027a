"""The database schema of a log in SQLite, and the statements that use it.

The table keeps the column names of the ``eventsourcing`` library's recorders, whose reading
methods work on it, and adds ours. The database itself refuses to change or delete a record, and
to add one to a sealed stream.
"""

from typing import Final, NamedTuple

APPLICATION_ID: Final = 0x50657264  # "Perd", shown by file(1) and checked at opening
SCHEMA_VERSION: Final = 2
UNCHECKED_VERSION: Final = 1  # its records have no checksums; the writer upgrades it on opening
EVENTS: Final = "events"

# The first bytes of every SQLite file.
MAGIC: Final = b"SQLite format 3\0"
HEADER_BYTES: Final = 100
APPLICATION_ID_AT: Final = slice(68, 72)

SEALED_MESSAGE: Final = "the stream is sealed"

CREATE: Final = (
    """
    CREATE TABLE events (
        rowid INTEGER PRIMARY KEY AUTOINCREMENT,
        originator_id TEXT NOT NULL,
        originator_version INTEGER NOT NULL,
        topic TEXT NOT NULL,
        state BLOB NOT NULL,
        scope TEXT, -- NULL: the stream is a scope of its own
        event_id BLOB NOT NULL,
        event_time INTEGER NOT NULL,
        commit_time INTEGER NOT NULL,
        schema INTEGER NOT NULL,
        seal INTEGER NOT NULL,
        meta BLOB NOT NULL,
        checksum BLOB, -- NULL: written before there were checksums
        UNIQUE (originator_id, originator_version)
    )
    """,
    # And by position, since SQLite appends the rowid. A stream that is its own scope is found by
    # the index on streams: claims, lineages and bare runs cost one index entry less.
    "CREATE INDEX events_by_scope ON events (scope) WHERE scope IS NOT NULL",
    "CREATE INDEX events_by_commit_time ON events (commit_time)",
    "CREATE UNIQUE INDEX sealed_streams ON events (originator_id) WHERE seal = 1",
    """
    CREATE TRIGGER events_are_never_changed BEFORE UPDATE ON events
    BEGIN SELECT RAISE(ABORT, 'the log is append-only: events are never changed'); END
    """,
    """
    CREATE TRIGGER events_are_never_deleted BEFORE DELETE ON events
    BEGIN SELECT RAISE(ABORT, 'the log is append-only: events are never deleted'); END
    """,
    f"""
    CREATE TRIGGER sealed_streams_stay_sealed BEFORE INSERT ON events
    WHEN EXISTS (SELECT 1 FROM events WHERE originator_id = NEW.originator_id AND seal = 1)
    BEGIN SELECT RAISE(ABORT, '{SEALED_MESSAGE}'); END
    """,
    # Without this, INSERT OR REPLACE would delete what is in its way and ask nobody.
    """
    CREATE TRIGGER events_are_never_replaced BEFORE INSERT ON events
    WHEN NEW.rowid <= (SELECT max(rowid) FROM events)
        OR EXISTS (SELECT 1 FROM events WHERE originator_id = NEW.originator_id
                   AND originator_version = NEW.originator_version)
    BEGIN SELECT RAISE(ABORT, 'the log is append-only: this place is taken'); END
    """,
    "CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)

ADD_CHECKSUMS: Final = "ALTER TABLE events ADD COLUMN checksum BLOB"

INSERT: Final = """
    INSERT INTO events
    VALUES (?1, ?2, ?3, ?4, ?5, nullif(?6, ?2), ?7, ?8, ?9, ?10, ?11, ?12, ?13)
"""
HEAD: Final = "SELECT rowid, event_id FROM events ORDER BY rowid DESC LIMIT 1"
LAST_POSITION: Final = "SELECT seq FROM sqlite_sequence WHERE name = 'events'"
COMMIT_TIME: Final = "SELECT commit_time FROM events ORDER BY rowid DESC LIMIT 1"
MARK_AT: Final = "SELECT rowid, event_id FROM events WHERE rowid = ?"
MARK_BEFORE: Final = """
    SELECT rowid, event_id FROM events WHERE commit_time <= ?
    ORDER BY commit_time DESC, rowid DESC LIMIT 1
"""
STREAM_VERSION: Final = "SELECT max(originator_version) FROM events WHERE originator_id = ?"
SCOPE_POSITION: Final = """
    SELECT max(
        coalesce((SELECT max(rowid) FROM events WHERE scope = ?1), 0),
        coalesce((SELECT rowid FROM events WHERE originator_id = ?1 AND scope IS NULL
                  ORDER BY originator_version DESC LIMIT 1), 0)
    )
"""
POSITION_OF: Final = """
    SELECT rowid FROM events WHERE originator_id = ? AND originator_version = ?
"""
REPEATED_EVENT_IDS: Final = """
    SELECT hex(event_id), count(*) FROM events GROUP BY event_id HAVING count(*) > 1 LIMIT 100
"""


class Reads(NamedTuple):
    """The statements that read whole rows: a record's values and its checksum."""

    everything: str
    scope: str
    own_scope: str
    stream: str
    newest_of_stream: str
    by_stream: str


def _reads(checksum: str) -> Reads:
    select = f"""
        SELECT rowid, originator_id, originator_version, topic, state,
            coalesce(scope, originator_id), event_id, event_time, commit_time, schema, seal, meta,
            {checksum}
        FROM events WHERE"""
    return Reads(
        # From a position on, not after the one before it: that may lie on a damaged page.
        everything=f"{select} rowid >= ? AND rowid <= ? ORDER BY rowid LIMIT ?",
        scope=f"{select} scope = ? AND rowid > ? AND rowid <= ? ORDER BY rowid LIMIT ?",
        own_scope=f"""{select} originator_id = ? AND scope IS NULL
            AND originator_version > ? AND originator_version <= ?
            ORDER BY originator_version LIMIT ?""",
        stream=f"""{select} originator_id = ?
            AND originator_version > ? AND originator_version <= ?
            ORDER BY originator_version LIMIT ?""",
        newest_of_stream=f"""{select} originator_id = ?
            ORDER BY originator_version DESC LIMIT 1""",
        by_stream=f"""{select} (originator_id, originator_version) > (?, ?)
            ORDER BY originator_id, originator_version LIMIT ?""",
    )


READS: Final = {SCHEMA_VERSION: _reads("checksum"), UNCHECKED_VERSION: _reads("NULL")}
