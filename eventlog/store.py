"""The port to a database of events: what the log asks of a store.

A store is synchronous and knows nothing of tasks; the log calls it from worker threads, ``commit``
from one thread at a time. ``perdure.eventlog.testing.StoreContract`` says the same as tests.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from perdure.eventlog.ledger import Lookup
from perdure.eventlog.record import Mark, Record

PAGE_RECORDS = 1000  # a read transaction never lasts longer than this, so checkpoints never starve
PAGE_BYTES = 1 << 20


class StoredPage(NamedTuple):
    """Some records, and the head of the log in the very same read.

    A follower goes on from the head: a record up to there that is not in the page is lost to it.
    """

    records: list[Record]
    more: bool
    head: Mark


class Bounds(NamedTuple):
    """How far a page may reach: up to a position, in records and in bytes.

    With ``pass_damage`` a read by position passes damaged records over, and logs each; without, it
    ends before one.
    """

    upto: int | None = None
    records: int = PAGE_RECORDS
    bytes: int = PAGE_BYTES
    pass_damage: bool = False


class Witness(NamedTuple):
    """A file beside the log, and the last position that it has seen."""

    file: str
    position: int


class Store(Lookup, Protocol):
    """An append-only database of records with one writer.

    A read ends before a record that is missing or not what was written; one that begins there
    raises DamagedRecord.
    """

    @property
    def generation(self) -> str:
        """The log's own random name, new after each restore."""

    @property
    def writable(self) -> bool:
        """Whether this process is the writer."""

    @property
    def unchecked(self) -> int:
        """The position up to which records were written without a checksum."""

    @property
    def wal_bytes(self) -> int:
        """How many bytes were written, and are not in the database's own file yet."""

    def commit(self, records: Sequence[Record]) -> None:
        """Write records, with their checksums, and return when they are on disk: all or none.

        Raises StoreConflict, DiskFull or StoreBusy with nothing written. Any other exception
        means that the outcome is unknown.
        """

    def check_room(self) -> None:
        """Raise DiskFull if there is no room for a commit."""

    @property
    def needs_upkeep(self) -> bool:
        """Whether ``upkeep`` would be worth its while."""

    def upkeep(self) -> None:
        """Do what has to be done between two batches now and then. Never loses anything."""

    def head(self) -> Mark:
        """The newest record's place."""

    def last_position(self) -> int:
        """The last position that was ever used, 0 in an empty log. It is never used again."""

    def commit_time(self) -> int:
        """The commit time of the newest record, 0 in an empty log."""

    def mark_at(self, position: int) -> Mark | None:
        """The place of the record at exactly this position, if there is one."""

    def mark_before(self, instant: int) -> Mark:
        """The place of the last record committed at or before this UTC nanosecond."""

    def read_all(self, after: int, bounds: Bounds) -> StoredPage:
        """Read records by position."""

    def read_scope(self, scope: str, after: int, bounds: Bounds) -> StoredPage:
        """Read a scope's records by position."""

    def read_stream(self, stream: str, after_version: int, bounds: Bounds) -> StoredPage:
        """Read a stream's records by version."""

    def version_at(self, stream: str, position: int) -> int:
        """The version that a stream had at a position, 0 if it did not exist yet."""

    def read_by_stream(self, after: tuple[str, int], limit: int) -> Sequence[Record]:
        """Read records in order of (stream, version), but damaged ones: for verification."""

    def integrity_problems(self) -> Sequence[str]:
        """Check the database itself: its structure, and that each event id occurs once."""

    def close(self) -> None:
        """Let go of the database."""
