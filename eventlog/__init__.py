"""The truth: streams, versions, positions, cursors. Knows bytes and not what an event means.

What stands on trio is imported when it is first asked for: a file can be read without an event
loop, and quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from perdure.eventlog.append import MAX_RECORD_BYTES as MAX_RECORD_BYTES
from perdure.eventlog.append import Append as Append
from perdure.eventlog.append import Receipt as Receipt
from perdure.eventlog.append import StreamWrite as StreamWrite
from perdure.eventlog.append import Unmoved as Unmoved
from perdure.eventlog.errors import CodecError as CodecError
from perdure.eventlog.errors import Conflict as Conflict
from perdure.eventlog.errors import DamagedRecord as DamagedRecord
from perdure.eventlog.errors import DiskFull as DiskFull
from perdure.eventlog.errors import EventLogError as EventLogError
from perdure.eventlog.errors import InvalidAppend as InvalidAppend
from perdure.eventlog.errors import InvalidCursor as InvalidCursor
from perdure.eventlog.errors import LogClosed as LogClosed
from perdure.eventlog.errors import LogCutShort as LogCutShort
from perdure.eventlog.errors import LogLocked as LogLocked
from perdure.eventlog.errors import LogUnsupported as LogUnsupported
from perdure.eventlog.errors import OutcomeUnknown as OutcomeUnknown
from perdure.eventlog.errors import Overloaded as Overloaded
from perdure.eventlog.errors import ReadOnlyLog as ReadOnlyLog
from perdure.eventlog.errors import RecordTooLarge as RecordTooLarge
from perdure.eventlog.errors import ScopeMoved as ScopeMoved
from perdure.eventlog.errors import StoreBusy as StoreBusy
from perdure.eventlog.errors import StoreDamaged as StoreDamaged
from perdure.eventlog.errors import StoreFailed as StoreFailed
from perdure.eventlog.errors import StreamSealed as StreamSealed
from perdure.eventlog.errors import Unavailable as Unavailable
from perdure.eventlog.errors import UnknownEvent as UnknownEvent
from perdure.eventlog.errors import UnreadableRecord as UnreadableRecord
from perdure.eventlog.errors import WrongExpectedVersion as WrongExpectedVersion
from perdure.eventlog.filter import EVERYTHING as EVERYTHING
from perdure.eventlog.filter import Filter as Filter
from perdure.eventlog.memory import MemoryStore as MemoryStore
from perdure.eventlog.reading import Page as Page
from perdure.eventlog.record import START as START
from perdure.eventlog.record import Mark as Mark
from perdure.eventlog.record import Metadata as Metadata
from perdure.eventlog.record import NewEvent as NewEvent
from perdure.eventlog.record import Record as Record
from perdure.eventlog.registry import EventRegistry as EventRegistry
from perdure.eventlog.snapshots import MemorySnapshots as MemorySnapshots
from perdure.eventlog.snapshots import Snapshot as Snapshot
from perdure.eventlog.snapshots import SnapshotFile as SnapshotFile
from perdure.eventlog.sqlite import SqliteStore as SqliteStore
from perdure.eventlog.store import Store as Store
from perdure.eventlog.verify import Report as Report
from perdure.eventlog.verify import verify as verify

if TYPE_CHECKING:
    from perdure.eventlog.backup import back_up as back_up
    from perdure.eventlog.backup import restore as restore
    from perdure.eventlog.env import Env as Env
    from perdure.eventlog.env import RealEnv as RealEnv
    from perdure.eventlog.follow import Batch as Batch
    from perdure.eventlog.follow import Follow as Follow
    from perdure.eventlog.follow import FollowLimits as FollowLimits
    from perdure.eventlog.log import EventLog as EventLog
    from perdure.eventlog.log import open_log as open_log
    from perdure.eventlog.tail import TailLimits as TailLimits
    from perdure.eventlog.writer import WriterLimits as WriterLimits

_ON_TRIO = {
    "back_up": "perdure.eventlog.backup",
    "restore": "perdure.eventlog.backup",
    "Env": "perdure.eventlog.env",
    "RealEnv": "perdure.eventlog.env",
    "Batch": "perdure.eventlog.follow",
    "Follow": "perdure.eventlog.follow",
    "FollowLimits": "perdure.eventlog.follow",
    "EventLog": "perdure.eventlog.log",
    "open_log": "perdure.eventlog.log",
    "TailLimits": "perdure.eventlog.tail",
    "WriterLimits": "perdure.eventlog.writer",
}


if not TYPE_CHECKING:  # a type checker that saw this would accept any name

    def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
        if name in _ON_TRIO:
            return getattr(import_module(_ON_TRIO[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_ON_TRIO]
