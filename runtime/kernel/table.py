"""A table of a listing, whose rows are known by a key and written whole.

Because rows are only ever put, the same fold writes a file, and tables in memory that lie over a
file which is only read: a row there hides the one of the same key in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The columns of a table, with their types, and how they are searched."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    changing: tuple[str, ...] = ()  # columns that differ when a row is put again
    indexes: tuple[str, ...] = ()  # what stands after the table's name

    @property
    def schema(self) -> list[str]:
        """Make it in a file."""
        columns = ", ".join((*self.columns, f"PRIMARY KEY ({', '.join(self.key)})"))
        rowid = " WITHOUT ROWID" if len(self.key) > 1 else ""
        return [f"CREATE TABLE {self.name} ({columns}){rowid}", *self._indexes("", self.name)]

    @property
    def overlay(self) -> list[str]:
        """Lay an empty one over that of a file: what is put hides what the file has."""
        new = f"new_{self.name}"
        same = " AND ".join(f"n.{column} = o.{column}" for column in self.key)
        kept = f"NOT EXISTS (SELECT 1 FROM temp.{new} n WHERE {same})"  # noqa: S608 - our names
        shown = f"SELECT * FROM main.{self.name} o WHERE {kept} UNION ALL SELECT * FROM temp.{new}"  # noqa: S608
        return [
            f"CREATE TEMP TABLE {new} AS SELECT * FROM main.{self.name} LIMIT 0",  # noqa: S608
            f"CREATE UNIQUE INDEX temp.{new}_key ON {new} ({', '.join(self.key)})",
            *self._indexes("temp.", new),
            f"CREATE TEMP VIEW {self.name} AS {shown}",
        ]

    def _indexes(self, schema: str, table: str) -> list[str]:
        return [
            f"CREATE INDEX {schema}{table}_{number} ON {table} {index}"
            for number, index in enumerate(self.indexes)
        ]


class Rows:
    """The rows of a listing while records are taken in."""

    def __init__(self, database: sqlite3.Connection, *, over: bool = False) -> None:
        """Write the tables of a file, or those that lie ``over`` them."""
        self._database = database
        self._over = over

    def select(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Give rows as they are by now."""
        return self._database.execute(statement, values).fetchall()

    def put(self, table: Table, rows: Iterable[Sequence[Any]]) -> None:
        """Write rows; one whose key is known replaces what may change of the other."""
        places = ", ".join("?" * len(table.columns))
        if self._over:
            statement = f"INSERT OR REPLACE INTO temp.new_{table.name} VALUES ({places})"  # noqa: S608
        else:
            changes = ", ".join(f"{column} = excluded.{column}" for column in table.changing)
            statement = (
                f"INSERT INTO {table.name} VALUES ({places})"  # noqa: S608 - our names
                f" ON CONFLICT ({', '.join(table.key)})"
                f" DO {f'UPDATE SET {changes}' if changes else 'NOTHING'}"
            )
        self._database.executemany(statement, rows)
