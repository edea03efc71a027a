from __future__ import annotations

import random
import subprocess
import sys

import pytest
import trio
from trio.testing import MockClock

from perdure.eventlog.env import Env, FaultPoint, IdMint, RealEnv
from perdure.eventlog.simulation import Dead, SimEnv, simulate


def world() -> SimEnv:
    """A simulated process."""
    return SimEnv(random.Random(7))


# Ids


def test_ids_are_version_seven_and_only_grow() -> None:
    """Ids sort by the time they were minted, whatever the clock does."""
    clock = iter([5_000_000, 5_000_000, 3_000_000, 9_000_000, 9_000_000])
    mint = IdMint(lambda: next(clock), lambda bits: (1 << bits) - 1)
    ids = [mint.mint() for _ in range(5)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 5
    assert {(i.version, i.variant) for i in ids} == {(7, "specified in RFC 4122")}
    assert ids[0].int >> 80 == 5


def test_many_ids_are_distinct() -> None:
    """A hundred thousand ids of one process, and of two, never meet."""
    first, second = RealEnv(), RealEnv()
    ids = {env.new_id() for env in (first, second) for _ in range(50_000)}
    assert len(ids) == 100_000


# Both worlds keep the same promises


@pytest.fixture(params=["real", "simulated"])
def env(request: pytest.FixtureRequest) -> Env:
    """Each world in turn."""
    return RealEnv() if request.param == "real" else world()


async def test_wall_time_is_in_nanoseconds(env: Env) -> None:
    """Some time after 2026 began."""
    assert env.now() >= 1_767_225_600_000_000_000
    assert env.monotonic() == pytest.approx(trio.current_time(), abs=1)


async def test_a_blocking_call_gives_its_result_or_its_error(env: Env) -> None:
    """Arguments go in, results and exceptions come out."""
    limiter = trio.CapacityLimiter(1)
    assert await env.run_sync(divmod, 7, 2, limiter=limiter) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await env.run_sync(divmod, 7, 0, limiter=limiter)
    assert limiter.borrowed_tokens == 0


async def test_a_call_that_has_begun_is_never_abandoned(env: Env) -> None:
    """Cancelled in the middle, it still runs to its end and gives its result."""
    done: list[str] = []
    results: list[str] = []

    def work() -> str:
        done.append("worked")
        return "result"

    async def ask() -> None:
        results.append(await env.run_sync(work, limiter=trio.CapacityLimiter(1)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked(0.001)
        nursery.cancel_scope.cancel()
    assert done == ["worked"]
    assert results == ["result"]


async def test_a_call_that_waits_for_its_turn_can_be_cancelled(env: Env) -> None:
    """Before it begins nothing has happened, and nothing will."""
    limiter = trio.CapacityLimiter(1)
    called: list[str] = []
    async with limiter:
        with trio.move_on_after(0.01) as scope:
            await env.run_sync(called.append, "never", limiter=limiter)
    assert scope.cancelled_caught
    assert called == []


# The simulated process


async def test_a_killed_process_does_nothing_more(autojump_clock: MockClock) -> None:
    """Every step of a dead process ends with Dead, and its last call had no effect."""
    env = world()
    called: list[str] = []

    async def call() -> None:
        with pytest.raises(Dead):
            await env.run_sync(called.append, "late", limiter=trio.CapacityLimiter(1))

    env._thread_delay = lambda: 1.0  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await trio.sleep(0.5)
        env.kill()
    assert called == []
    with pytest.raises(Dead):
        await env.sleep(1)
    with pytest.raises(Dead):
        env.new_id()
    with pytest.raises(Dead):
        await env.faults.reach(FaultPoint.FOLLOW_WAIT)


async def test_a_fault_can_be_planted_at_a_named_point(autojump_clock: MockClock) -> None:
    """The n-th passing of a point fails as a test wishes."""
    env = world()

    def fail() -> None:
        if env.faults.passed[FaultPoint.STORE_BEGIN] == 2:
            raise OSError("planted")

    env.faults.planted[FaultPoint.STORE_BEGIN] = fail
    env.faults.strike(FaultPoint.STORE_BEGIN)
    with pytest.raises(OSError, match="planted"):
        env.faults.strike(FaultPoint.STORE_BEGIN)


def test_fault_points_are_dead_code_in_production() -> None:
    """The real world has none."""
    assert RealEnv().faults is None


async def test_a_simulation_starts_no_process(autojump_clock: MockClock) -> None:
    """Nothing of what happens in there reaches the real machine."""
    with pytest.raises(OSError, match="no processes in a simulation"):
        await world().open_process(["echo", "now"])


async def test_a_real_process_is_started() -> None:
    """The same interface starts a real one."""
    process = await RealEnv().open_process(
        [sys.executable, "-c", "print(input())"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    async with process.stdin:
        await process.stdin.send_all(b"hello\n")
    async with process.stdout:
        assert b"".join([bytes(piece) async for piece in process.stdout]) == b"hello\n"
    assert await process.wait() == 0


def test_a_simulation_that_hangs_ends() -> None:
    """Virtual time runs out in no time."""

    async def hang(_: random.Random) -> None:
        await trio.sleep_forever()

    with pytest.raises(trio.TooSlowError):
        simulate(1, hang, virtual_seconds=1_000_000)
