"""A seeded world: the same seed gives the same run, down to the last task switch.

``simulate(seed, main)`` runs an async function under virtual time with Trio's scheduler in seeded
order. Inside, each ``SimEnv`` is one *process*: its threads are calls in the event loop with seeded
delays, its wall clock can jump, its fault points can wait, fail or kill. ``SimEnv.kill`` is the
``kill -9`` of this world: from then on nothing that this process does takes effect, and each of its
tasks ends at its next step with ``Dead``.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio
import trio.testing
from trio._core import _run as _trio_scheduler

from perdure.eventlog.env import FaultPoint, IdMint
from perdure.eventlog.units import NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
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
        return EPOCH + round(trio.current_time() * NANOSECONDS) + self.wall_offset

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
        """Refuse: no processes are simulated."""
        raise OSError(f"there are no processes in a simulation: {command[0]}")
