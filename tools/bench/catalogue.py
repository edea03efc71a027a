"""All benchmarks, in the order in which they run."""

from typing import Final

from tools.bench.actors import MEMORY, REBUILD
from tools.bench.benchmark import Benchmark
from tools.bench.blobs import BLOB_EXPORT, BLOB_READ, BLOB_WRITE
from tools.bench.eventlog_append import APPEND_MANY, APPEND_ONE
from tools.bench.eventlog_followers import LIVE_LAG, STALLED
from tools.bench.eventlog_place import CURSOR, INSTANT
from tools.bench.eventlog_replay import REPLAY
from tools.bench.eventlog_scope import SCOPE_BUSY, SCOPE_SMALL
from tools.bench.http import HTTP
from tools.bench.lists import LISTS
from tools.bench.processes import PROCESS_CANCEL, PROCESS_MESSAGES, PROCESS_START
from tools.bench.recovery import RECOVERY
from tools.bench.runs import RUNS_MANY, RUNS_ONE, RUNS_VERY_MANY
from tools.bench.served_followers import WS_FOLLOWERS
from tools.bench.served_log import WS_LAG, WS_REPLAY
from tools.bench.served_runs import HTTP_RUNS, WS_RUNS
from tools.bench.served_status import STATUS

BENCHMARKS: Final[tuple[Benchmark, ...]] = (
    APPEND_MANY,
    APPEND_ONE,
    REPLAY,
    STALLED,
    LIVE_LAG,
    SCOPE_BUSY,
    SCOPE_SMALL,
    INSTANT,
    CURSOR,
    RUNS_MANY,
    RUNS_VERY_MANY,
    RUNS_ONE,
    RECOVERY,
    REBUILD,
    MEMORY,
    PROCESS_START,
    PROCESS_MESSAGES,
    PROCESS_CANCEL,
    BLOB_WRITE,
    BLOB_READ,
    BLOB_EXPORT,
    HTTP,
    *WS_RUNS,
    *HTTP_RUNS,
    WS_LAG,
    WS_REPLAY,
    *WS_FOLLOWERS,
    STATUS,
    *LISTS,
)
