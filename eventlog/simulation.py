"""A seeded world: the same seed gives the same run, down to the last task switch.

``simulate(seed, main)`` runs an async function under virtual time with Trio's scheduler in seeded
order. Inside, each ``SimEnv`` is one *process*: its threads are calls in the event loop with seeded
delays, its wall clock can jump, its fault points can wait, fail or kill. ``SimEnv.kill`` is the
``kill -9`` of this world: from then on nothing that this process does takes effect, and each of its
tasks ends at its next step with ``Dead``.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio
import trio.testing
from trio._core import _run as _trio_scheduler

from perdure.eventlog.env import FaultPoint, IdMint

if TYPE_CHECKING:
    from typing import TypeVarTuple, Unpack
    from uuid import UUID

    from perdure.eventlog.env import Process

    Arguments = TypeVarTuple("Arguments")

Result = TypeVar("Result")

EPOCH: Final = 1_767_225_600_000_000_000  # 2026-01-01 UTC, in nanoseconds
_SCHEDULER_HOOKS: Final = ("_ALLOW_DETERMINISTIC_SCHEDULING", "_r")


class Dead(BaseException):
    """Raised into every task of a killed process: it executes nothing more."""


def simulate(
    seed: int, main: Callable[[random.Random], Awaitable[Result]], *, virtual_seconds: float = 3600
) -> Result:
    """Run ``main`` in the world of a seed, at most so many virtual seconds."""
    missing = [hook for hook in _SCHEDULER_HOOKS if not hasattr(_trio_scheduler, hook)]
    if missing:
        raise RuntimeError(f"this trio has no {missing}: simulations would not repeat themselves")

    async def bounded() -> Result:
        with trio.fail_after(virtual_seconds):
            return await main(random.Random(seed))

    before = {hook: getattr(_trio_scheduler, hook) for hook in _SCHEDULER_HOOKS}
    for hook, value in zip(_SCHEDULER_HOOKS, (True, random.Random(seed)), strict=True):
        setattr(_trio_scheduler, hook, value)
    try:
        return trio.run(bounded, clock=trio.testing.MockClock(autojump_threshold=0))
    finally:
        for hook, value in before.items():
            setattr(_trio_scheduler, hook, value)


class SimFaults:
    """Fault points of one process: seeded delays, and what a test plants at a point by name."""

    def __init__(self, env: SimEnv, chance: random.Random) -> None:
        """Nothing is planted; delays come with the chance drawn for this process."""
        self._env = env
        self._chance = chance
        self._delay_chance = chance.choice([0.0, 0.1, 0.5])
        self.planted: dict[FaultPoint, Callable[[], None]] = {}
        self.passed: dict[FaultPoint, int] = {}

    async def reach(self, point: FaultPoint) -> None:
        """Pass a point in the event loop."""
        self.strike(point)
        if self._chance.random() < self._delay_chance:
            await trio.sleep(self._chance.choice([0, 0, 0.001, 0.02]))
            self._env.breathe()

    def strike(self, point: FaultPoint) -> None:
        """Pass a point in a thread."""
        self._env.breathe()
        self.passed[point] = self.passed.get(point, 0) + 1
        action = self.planted.get(point)
        if action is not None:
            action()
            self._env.breathe()


class SimEnv:
    """One simulated process."""

    def __init__(self, chance: random.Random) -> None:
        """Start a process in the world whose chance this is."""
        self.random = chance
        self.died = trio.Event()
        self.wall_offset = 0  # nanoseconds; a test sets it to make the wall clock jump
        self.faults = SimFaults(self, chance)
        self.programs: dict[str, Program] = {}
        self._ids = IdMint(self.now, chance.getrandbits)

    def kill(self) -> None:
        """End this process as ``kill -9`` would. Whoever runs it cancels its nursery then."""
        self.died.set()

    def breathe(self) -> None:
        """Raise Dead if this process was killed."""
        if self.died.is_set():
            raise Dead

    def secret_bytes(self, count: int) -> bytes:
        """Give seeded bytes: nothing is secret here."""
        self.breathe()
        return self.random.randbytes(count)

    def now(self) -> int:
        """Wall time: virtual time since 2026, plus the offset."""
        return EPOCH + round(trio.current_time() * 1e9) + self.wall_offset

    def monotonic(self) -> float:
        """Virtual seconds."""
        return trio.current_time()

    async def sleep(self, seconds: float) -> None:
        """Wait in virtual time."""
        self.breathe()
        await trio.sleep(seconds)
        self.breathe()

    def new_id(self) -> UUID:
        """Mint a seeded UUID version 7."""
        self.breathe()
        return self._ids.mint()

    def new_event_id(self) -> bytes:
        """Mint an id as bytes."""
        return self.new_id().bytes

    async def run_sync(
        self,
        fn: Callable[[Unpack[Arguments]], Result],
        *args: *Arguments,
        limiter: trio.CapacityLimiter,
    ) -> Result:
        """Call a function in the event loop, after and before a seeded delay, uncancellable."""
        self.breathe()
        thread = object()
        await limiter.acquire_on_behalf_of(thread)
        try:
            with trio.CancelScope(shield=True):
                await trio.sleep(self._thread_delay())
                self.breathe()
                result = fn(*args)
                await trio.sleep(self._thread_delay())
                self.breathe()
        finally:
            limiter.release_on_behalf_of(thread)
        return result

    def _thread_delay(self) -> float:
        return self.random.choice([0, 0, 0.001, 0.005, 0.1])

    async def run_and_leave(
        self, fn: Callable[[], Result], *, limiter: trio.CapacityLimiter
    ) -> Result:
        """Call a blocking function; simulated threads are never left behind."""
        return await self.run_sync(fn, limiter=limiter)

    async def open_process(self, command: Sequence[str], **_: Any) -> Process:
        """Start one of the programs that the test has put into ``programs``."""
        self.breathe()
        return await SimProcess.start(self, self.programs[command[0]], command)

    def stream_pair(self) -> tuple[trio.abc.Stream, trio.abc.Stream]:
        """Make two connected streams that deliver in seeded pieces."""
        left, right = trio.testing.memory_stream_pair()
        return SimStream(self, left), SimStream(self, right)


class SimStream(trio.abc.HalfCloseableStream):
    """A memory stream that hands out what was sent in pieces of any size."""

    def __init__(self, env: SimEnv, stream: trio.StapledStream[Any, Any]) -> None:
        """Wrap one end of a memory stream pair."""
        self._env = env
        self._stream = stream

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send everything, or die in the middle."""
        self._env.breathe()
        await self._stream.send_all(data)
        self._env.breathe()

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until sending makes sense."""
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Receive a piece of seeded size."""
        self._env.breathe()
        piece = self._env.random.choice([1, 7, 1000, 65536])
        received = await self._stream.receive_some(min(piece, max_bytes or piece))
        self._env.breathe()
        return bytes(received)

    async def send_eof(self) -> None:
        """Say that nothing more will be sent."""
        await self._stream.send_eof()

    async def aclose(self) -> None:
        """Close this end."""
        await self._stream.aclose()


Program = Callable[[Sequence[str], trio.abc.Stream], Awaitable[int]]


class SimProcess:
    """A program that runs as a task of the simulation, with its standard streams in memory."""

    stderr: trio.abc.ReceiveStream | None = None

    def __init__(self, stream: trio.abc.Stream, pid: int) -> None:
        """Use ``start``."""
        self.stdin: trio.abc.SendStream | None = stream
        self.stdout: trio.abc.ReceiveStream | None = stream
        self.pid = pid
        self.returncode: int | None = None
        self._ended = trio.Event()
        self._scope = trio.CancelScope()

    @classmethod
    async def start(cls, env: SimEnv, program: Program, command: Sequence[str]) -> SimProcess:
        """Start a program in a task of its own, as a child outlives who started it."""
        ours, theirs = env.stream_pair()
        process = cls(ours, env.random.randrange(2, 1 << 22))
        trio.lowlevel.spawn_system_task(process._run, program, command, theirs)
        await trio.lowlevel.checkpoint()
        return process

    async def _run(self, program: Program, command: Sequence[str], stream: trio.abc.Stream) -> None:
        code = -9
        with self._scope:
            try:
                code = await program(command, stream)
            except Exception:  # noqa: BLE001 - a program's failure is its exit status
                code = 1
        await trio.aclose_forcefully(stream)
        self.returncode = code
        self._ended.set()

    async def wait(self) -> int:
        """Wait for the end."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        """End it: simulated programs handle no signals."""
        self._scope.cancel()

    def kill(self) -> None:
        """End it."""
        self._scope.cancel()
