"""The world as Perdure sees it: time, ids, chance, threads, processes.

Every component gets them from one ``Env`` and from nowhere else. ``RealEnv`` is the real world;
``perdure.eventlog.simulation.SimEnv`` is a seeded one in which a whole server runs, crashes and
recovers in milliseconds, the same way each time.
"""

from __future__ import annotations

import os
import random
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from uuid import UUID

import trio

from perdure.eventlog import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVarTuple, Unpack

    Arguments = TypeVarTuple("Arguments")

Result = TypeVar("Result")

_RANDOM_BITS: Final = 74  # what RFC 9562 leaves of a version 7 UUID beside time and version
_LOW_BITS: Final = 62


class FaultPoint(StrEnum):
    """The places where a simulation may delay, fail or kill. Dead code in production."""

    WRITER_TAKE = "writer.take"  # a batch was taken, nothing written
    WRITER_COMMIT = "writer.commit"  # admitted and numbered, not handed to the store
    WRITER_COMMITTED = "writer.committed"  # on disk, nobody answered
    WRITER_SETTLED = "writer.settled"  # answered, the next batch not taken
    STORE_BEGIN = "store.begin"  # before the store writes
    STORE_END = "store.end"  # after the store has committed
    FOLLOW_READ = "follow.read"  # about to read the store
    FOLLOW_WAIT = "follow.wait"  # found nothing, not yet waiting
    POLL_READ = "poll.read"  # a reading process is about to look for new records


class Faults(Protocol):
    """What a simulation does when the code comes by a fault point."""

    async def reach(self, point: FaultPoint) -> None:
        """Pass a point in the event loop: go on, wait, or die."""

    def strike(self, point: FaultPoint) -> None:
        """Pass a point in a worker thread: go on, fail, or die."""


class Process(Protocol):
    """The part of ``trio.Process`` that Perdure uses."""

    stdin: trio.abc.SendStream | None
    stdout: trio.abc.ReceiveStream | None
    stderr: trio.abc.ReceiveStream | None

    @property
    def pid(self) -> int:
        """The process id."""

    @property
    def returncode(self) -> int | None:
        """The exit status, or None while it runs."""

    async def wait(self) -> int:
        """Wait for the end."""

    def kill(self) -> None:
        """End it."""


class Env(Protocol):
    """Everything that a component cannot compute by itself."""

    @property
    def faults(self) -> Faults | None:
        """The simulation's fault points; None in production."""

    @property
    def random(self) -> random.Random:
        """Chance, for jitter and sampling. Never for secrets."""

    def secret_bytes(self, count: int) -> bytes:
        """Give bytes that nobody can guess, for keys and nonces."""

    def now(self) -> int:
        """Wall time in UTC nanoseconds. It is data and orders nothing."""

    def monotonic(self) -> float:
        """Seconds on the clock of the event loop, for durations and deadlines."""

    async def sleep(self, seconds: float) -> None:
        """Wait on the clock of the event loop."""

    def new_id(self) -> UUID:
        """Mint a UUID version 7, greater than all that this Env minted before."""

    def new_event_id(self) -> bytes:
        """Mint the same as bytes: a log needs many of them."""

    async def run_sync(
        self,
        fn: Callable[[Unpack[Arguments]], Result],
        *args: *Arguments,
        limiter: trio.CapacityLimiter,
    ) -> Result:
        """Call a blocking function in a thread. Once begun it is never abandoned."""

    async def run_and_leave(
        self, fn: Callable[[], Result], *, limiter: trio.CapacityLimiter
    ) -> Result:
        """Call a blocking function in a thread that is left behind when the caller is cancelled."""

    async def open_process(self, command: Sequence[str], **options: Any) -> Process:
        """Start a subprocess; ``options`` are those of ``trio.lowlevel.open_process``."""


class RealEnv:
    """The real world."""

    faults: Final = None

    def __init__(self) -> None:
        """Nothing is opened and no task is started."""
        self.random = random.SystemRandom()
        self._ids = IdMint(self.now, _BufferedBits().take)

    def secret_bytes(self, count: int) -> bytes:
        """Give bytes of the operating system."""
        return os.urandom(count)

    def now(self) -> int:
        """Wall time in UTC nanoseconds."""
        return clock.wall()

    def monotonic(self) -> float:
        """Seconds on the clock of the event loop."""
        return trio.current_time()

    async def sleep(self, seconds: float) -> None:
        """Wait on the clock of the event loop."""
        await trio.sleep(seconds)

    def new_id(self) -> UUID:
        """Mint a UUID version 7."""
        return self._ids.mint()

    def new_event_id(self) -> bytes:
        """Mint a UUID version 7, as bytes."""
        return self._ids.mint_bytes()

    async def run_sync(
        self,
        fn: Callable[[Unpack[Arguments]], Result],
        *args: *Arguments,
        limiter: trio.CapacityLimiter,
    ) -> Result:
        """Call a blocking function in a thread. Once begun it is never abandoned."""
        return await trio.to_thread.run_sync(fn, *args, limiter=limiter)

    async def run_and_leave(
        self, fn: Callable[[], Result], *, limiter: trio.CapacityLimiter
    ) -> Result:
        """Call a blocking function in a thread that is left behind when the caller is cancelled."""
        return await trio.to_thread.run_sync(fn, limiter=limiter, abandon_on_cancel=True)

    async def open_process(self, command: Sequence[str], **options: Any) -> Process:
        """Start a subprocess."""
        return await trio.lowlevel.open_process(command, **options)


class _BufferedBits:
    """Random bits of the operating system, fetched by the page: asking for each id would wait."""

    _PAGE: Final = 4096

    def __init__(self) -> None:
        self._bits = b""
        self._used = 0

    def take(self, bits: int) -> int:
        """Give so many bits, each only once."""
        size = (bits + 7) // 8
        if self._used + size > len(self._bits):
            self._bits, self._used = os.urandom(self._PAGE), 0
        piece = self._bits[self._used : self._used + size]
        self._used += size
        return int.from_bytes(piece, "big") >> (8 * size - bits)


class IdMint:
    """UUIDs of version 7 that never go backwards, whatever the clock does."""

    def __init__(self, now: Callable[[], int], random_bits: Callable[[int], int]) -> None:
        """Take wall time in nanoseconds and a source of random bits."""
        self._now = now
        self._random_bits = random_bits
        self._last = 0

    def mint(self) -> UUID:
        """Give the next id: milliseconds, then randomness, but always more than the last one."""
        return UUID(int=self._next())

    def mint_bytes(self) -> bytes:
        """Give the next id as its bytes."""
        return self._next().to_bytes(16, "big")

    def _next(self) -> int:
        milliseconds = self._now() // 1_000_000
        fresh = milliseconds << _RANDOM_BITS | self._random_bits(_RANDOM_BITS)
        self._last = value = max(fresh, self._last + 1)
        high, low = value >> _LOW_BITS, value & ((1 << _LOW_BITS) - 1)
        return (high >> 12) << 80 | 7 << 76 | (high & 0xFFF) << 64 | 2 << 62 | low
