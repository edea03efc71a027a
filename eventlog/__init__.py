"""The truth: streams, versions, positions, cursors. Knows bytes and not what an event means.

What stands on trio is imported when it is first asked for: a file can be read without an event
loop, and quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from eventlog.append import MAX_RECORD_BYTES as MAX_RECORD_BYTES
from eventlog.append import Append as Append
from eventlog.append import Receipt as Receipt
from eventlog.append import StreamWrite as StreamWrite
from eventlog.append import Unmoved as Unmoved
from eventlog.errors import CodecError as CodecError
from eventlog.errors import Conflict as Conflict
from eventlog.errors import DiskFull as DiskFull
from eventlog.errors import EventLogError as EventLogError
from eventlog.errors import InvalidAppend as InvalidAppend
from eventlog.errors import InvalidCursor as InvalidCursor
from eventlog.errors import LogClosed as LogClosed
from eventlog.errors import LogLocked as LogLocked
from eventlog.errors import LogUnsupported as LogUnsupported
from eventlog.errors import OutcomeUnknown as OutcomeUnknown
from eventlog.errors import Overloaded as Overloaded
from eventlog.errors import ReadOnlyLog as ReadOnlyLog
from eventlog.errors import RecordTooLarge as RecordTooLarge
from eventlog.errors import ScopeMoved as ScopeMoved
from eventlog.errors import StoreBusy as StoreBusy
from eventlog.errors import StoreDamaged as StoreDamaged
from eventlog.errors import StoreFailed as StoreFailed
from eventlog.errors import StreamSealed as StreamSealed
from eventlog.errors import Unavailable as Unavailable
from eventlog.errors import UnknownEvent as UnknownEvent
from eventlog.errors import WrongExpectedVersion as WrongExpectedVersion
from eventlog.filter import EVERYTHING as EVERYTHING
from eventlog.filter import Filter as Filter
from eventlog.memory import MemoryStore as MemoryStore
from eventlog.reading import Page as Page
from eventlog.record import START as START
from eventlog.record import Mark as Mark
from eventlog.record import Metadata as Metadata
from eventlog.record import NewEvent as NewEvent
from eventlog.record import Record as Record
from eventlog.registry import EventRegistry as EventRegistry
from eventlog.snapshots import MemorySnapshots as MemorySnapshots
from eventlog.snapshots import Snapshot as Snapshot
from eventlog.snapshots import SnapshotFile as SnapshotFile
from eventlog.sqlite import SqliteStore as SqliteStore
from eventlog.store import Store as Store
from eventlog.verify import Report as Report
from eventlog.verify import verify as verify

if TYPE_CHECKING:
    from eventlog.backup import back_up as back_up
    from eventlog.backup import restore as restore
    from eventlog.env import Env as Env
    from eventlog.env import RealEnv as RealEnv
    from eventlog.follow import Batch as Batch
    from eventlog.follow import Follow as Follow
    from eventlog.follow import FollowLimits as FollowLimits
    from eventlog.log import EventLog as EventLog
    from eventlog.log import open_log as open_log
    from eventlog.tail import TailLimits as TailLimits
    from eventlog.writer import WriterLimits as WriterLimits

_ON_TRIO = {
    "back_up": "eventlog.backup",
    "restore": "eventlog.backup",
    "Env": "eventlog.env",
    "RealEnv": "eventlog.env",
    "Batch": "eventlog.follow",
    "Follow": "eventlog.follow",
    "FollowLimits": "eventlog.follow",
    "EventLog": "eventlog.log",
    "open_log": "eventlog.log",
    "TailLimits": "eventlog.tail",
    "WriterLimits": "eventlog.writer",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
    if name in _ON_TRIO:
        return getattr(import_module(_ON_TRIO[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_ON_TRIO]
