"""The format of a log's file: made, upgraded, and what the file says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from perdure.eventlog import checksum
from perdure.eventlog.cursor import GENERATION_BYTES
from perdure.eventlog.errors import LogUnsupported, StoreDamaged
from perdure.eventlog.sqlite import schema

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from perdure.eventlog.env import Env
    from perdure.eventlog.sqlite.connection import Datastore

_FACTS: Final = ("created_at", "generation", "kind", "unchecked")
_CHECK: Final = "checksum"  # of the other facts
EVERY_POSITION: Final = (1 << 63) - 1


class About(NamedTuple):
    """What a file says of itself. Records up to position ``unchecked`` have no checksums."""

    version: int
    generation: str
    kind: str
    unchecked: int


def create_if_empty(datastore: Datastore, env: Env, kind: str) -> None:
    """Make the tables in one transaction, so that a crash leaves a log or nothing."""
    with datastore.ours(commit=True) as c:
        (objects,) = c.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if objects:
            return
        for statement in schema.CREATE:
            c.execute(statement)
        generation = env.random.getrandbits(8 * GENERATION_BYTES).to_bytes(8, "big").hex()
        _write(c, {"kind": kind, "generation": generation, "created_at": str(env.now())})
        c.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")


def upgrade(datastore: Datastore) -> None:
    """Give a log of the last format a place for checksums; its records stay as they are."""
    with datastore.ours(commit=True) as c:
        (version,) = c.execute("PRAGMA user_version").fetchone()
        if version == schema.UNCHECKED_VERSION:
            (last,) = c.execute("SELECT coalesce(max(rowid), 0) FROM events").fetchone()
            c.execute(schema.ADD_CHECKSUMS)
            _write(c, {**_facts(c), "unchecked": str(last)})


def read_about(datastore: Datastore, path: Path) -> About:
    """Read what a file says of itself, or raise LogUnsupported or StoreDamaged."""
    with datastore.ours(commit=False) as c:
        (application,) = c.execute("PRAGMA application_id").fetchone()
        (version,) = c.execute("PRAGMA user_version").fetchone()
        if application != schema.APPLICATION_ID:
            raise LogUnsupported(f"{path} is no Perdure log")
        if version not in schema.READS:
            raise LogUnsupported(
                f"{path} has format {version}; this release reads format {schema.SCHEMA_VERSION}"
                f" and upgrades format {schema.UNCHECKED_VERSION}"
            )
        facts = _facts(c)
    has_checksums = version == schema.SCHEMA_VERSION
    if not {"generation", "kind"} <= facts.keys() or (
        has_checksums and facts.get(_CHECK) != _checksum(facts)
    ):
        raise StoreDamaged(str(path), "its name and kind are not those that were written")
    unchecked = int(facts["unchecked"]) if has_checksums else EVERY_POSITION
    return About(version, facts["generation"], facts["kind"], unchecked)


def _facts(c: sqlite3.Cursor) -> dict[str, str]:
    return dict(c.execute("SELECT name, value FROM about").fetchall())


def _checksum(facts: dict[str, str]) -> str:
    check: bytes = checksum.append_to([facts.get(name) for name in _FACTS])[-1]
    return check.hex()


def _write(c: sqlite3.Cursor, facts: dict[str, str]) -> None:
    """Write the facts of a file in the newest format, and their checksum."""
    facts = {"unchecked": "0", **facts}
    facts[_CHECK] = _checksum(facts)
    c.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", facts.items())
    c.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION}")
