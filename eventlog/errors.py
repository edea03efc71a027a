"""What can go wrong with the log, whose fault it is, and whether to try again.

EventLogError
├── Conflict                 the caller decided on old news: read again, decide again
│   ├── WrongExpectedVersion     the stream has moved on
│   ├── StreamSealed             the stream has ended for good
│   └── ScopeMoved               something was written in a scope that had to stand still
├── Unavailable              nobody's fault; nothing was written; try again later
│   ├── Overloaded               too much new work is waiting
│   ├── DiskFull                 no space left; reads go on
│   └── StoreBusy                another process holds the database lock
├── InvalidAppend            the caller's fault: such an append can never succeed
│   └── RecordTooLarge           because one of its events has too many bytes
├── InvalidCursor            the caller's fault: not a place in this log
├── CodecError               bytes or values outside our CBOR profile
│   └── UnreadableRecord         not the caller's: what is stored cannot be decoded
│       ├── UnknownEvent             because a newer release has written it; upgrade
│       └── DamagedRecord            because it is not what was written; bring back a backup
├── StoreConflict            the store's backstop refused a batch (never seen by callers)
├── StoreFailed              the database cannot be read or written; look at the disk
│   └── StoreDamaged             because its file is damaged; bring back a backup
│       └── LogCutShort              because its end is missing; bring back the file with it
├── LogClosed                this log no longer works; open it again
│   ├── StoreUnreadable          because its database cannot be read; nothing was written
│   └── OutcomeUnknown           and whether the append was written is not known
├── ReadOnlyLog              this process reads beside the writer
├── LogLocked                another process is the writer
└── LogUnsupported           the file is not a log that this release can open
"""


class EventLogError(Exception):
    """The root of everything this package raises on purpose."""


class Conflict(EventLogError):
    """The log has moved since the caller looked. Read again and decide again."""


class WrongExpectedVersion(Conflict):
    """A stream is not at the version the append was decided on."""

    def __init__(self, stream: str, expected: int, actual: int) -> None:
        """Name the stream and both versions."""
        super().__init__(f"stream {stream!r} is at version {actual}, not {expected}")
        self.stream = stream
        self.expected = expected
        self.actual = actual


class StreamSealed(Conflict):
    """A stream was sealed by its last record; nothing may follow."""

    def __init__(self, stream: str, expected: int, version: int) -> None:
        """Name the stream, the version expected and the one that sealed it."""
        super().__init__(f"stream {stream!r} was sealed at version {version}")
        self.stream = stream
        self.expected = expected
        self.version = version


class ScopeMoved(Conflict):
    """A scope that the append required to stand still has a newer record."""

    def __init__(self, scope: str, position: int, actual: int) -> None:
        """Name the scope, the position required and the one found."""
        super().__init__(f"scope {scope!r} has moved past position {position}, to {actual}")
        self.scope = scope
        self.position = position
        self.actual = actual


class Unavailable(EventLogError):
    """Nothing was written and nothing is broken. Try again a little later."""


class Overloaded(Unavailable):
    """Too many appends wait already, so new work is refused."""

    def __init__(self, queued: int) -> None:
        """Say how many appends wait."""
        super().__init__(f"{queued} appends wait for the disk already; try again later")
        self.queued = queued


class DiskFull(Unavailable):
    """The disk has no space left. Reads go on; writes resume when space returns."""


class StoreBusy(Unavailable):
    """Another process held the database's write lock for too long."""


class InvalidAppend(EventLogError):
    """An append that no state of the log could accept."""


class RecordTooLarge(InvalidAppend):
    """An event that has more bytes than fit into a record."""

    def __init__(self, name: str, size: int, limit: int) -> None:
        """Name the event and both sizes."""
        super().__init__(f"{name} takes {size} bytes; at most {limit} fit into a record")
        self.size = size
        self.limit = limit


class InvalidCursor(EventLogError):
    """A cursor that is malformed, foreign, ahead of the log or not matching its record."""

    def __init__(self, reason: str) -> None:
        """Say in a few words what is wrong with it."""
        super().__init__(f"invalid cursor: {reason}")
        self.reason = reason


class CodecError(EventLogError):
    """Bytes or values outside the CBOR profile of the log."""


class UnreadableRecord(CodecError):
    """A record in the log cannot be decoded. Whoever asked for it has done nothing wrong."""


class UnknownEvent(UnreadableRecord):
    """No event class is registered under this name, or not at this schema version."""

    def __init__(self, name: str, schema: int) -> None:
        """Name the event and its schema version."""
        super().__init__(
            f"event {name!r} with schema version {schema} is not known to this release"
        )
        self.name = name
        self.schema = schema


class DamagedRecord(UnreadableRecord):
    """A record is missing, or not what was written: its checksum does not match.

    ``position`` and ``last`` say where, as far as that is known: several records may be missing.
    """

    def __init__(
        self, what: str, reason: str, *, position: int = 0, last: int = 0, stream: str = ""
    ) -> None:
        """Name what was asked for and what is wrong with it."""
        super().__init__(f"{what} is damaged: {reason}")
        self.position = position
        self.last = max(position, last)
        self.stream = stream


class StoreConflict(EventLogError):
    """The database refused a batch: a version exists already, or a stream is sealed."""


class StoreFailed(EventLogError):
    """The database failed. In the middle of a write this means that the outcome is unknown."""


class StoreDamaged(StoreFailed):
    """The database's file is not what was written to it."""

    def __init__(self, path: str, reason: str) -> None:
        """Name the file and what the database says of it."""
        super().__init__(f"{path} is damaged: {reason}")
        self.path = path
        self.reason = reason


class LogCutShort(StoreDamaged):
    """The log ends before a position that a file beside it has seen."""

    def __init__(self, path: str, end: int, witness: str, position: int) -> None:
        """Name where the log ends, and the file that knows of more."""
        super().__init__(
            path, f"it ends at position {end}, but {witness} has seen position {position}"
        )
        self.remedy = (
            "The newest records are missing. Put log.db-wal back, if it was moved or deleted, or"
            " restore a backup\ninto another directory. To go on without those records, delete"
            f" {witness}: it is made\nanew from the log."
        )


class LogClosed(EventLogError):
    """The log is closed and this append was not written."""


class StoreUnreadable(LogClosed):
    """The store cannot be read, so nothing can be decided. Nothing was written."""


class OutcomeUnknown(LogClosed):
    """The store failed in the middle of a write: the record may or may not be there.

    Only opening the log again tells. An append repeated with the same event ids is recognised.
    """


class ReadOnlyLog(EventLogError):
    """The log was opened for reading, beside its writer."""


class LogLocked(EventLogError):
    """Another process is the writer of this log."""

    def __init__(self, path: str, pid: int | None) -> None:
        """Name the log and the process that holds it, where it is known."""
        holder = f"process {pid}" if pid is not None else "another process"
        super().__init__(
            f"{path} is being written by {holder}; stop it, or open the log for reading beside it"
        )
        self.path = path
        self.pid = pid


class LogUnsupported(EventLogError):
    """The file is not a log, or not one that this release can open."""
