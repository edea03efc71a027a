"""How long a client waits between attempts, and when it gives up."""

from __future__ import annotations

import random

from trio.testing import MockClock

from perdure.eventlog.simulation import SimEnv
from perdure.runtime.client.backoff import FIRST, LONGEST, Backoff, delays


def test_delays_double_up_to_a_bound_and_a_random_half_is_left_out() -> None:
    """Clients that lost one server at once do not come back in step."""
    longest = delays(lambda _, high: high)
    assert [next(longest) for _ in range(8)] == [
        FIRST,
        2 * FIRST,
        4 * FIRST,
        8 * FIRST,
        16 * FIRST,
        32 * FIRST,
        LONGEST,
        LONGEST,
    ]
    shortest = delays(lambda low, _: low)
    assert [next(shortest) for _ in range(2)] == [FIRST / 2, FIRST]
    drawn = delays(random.Random(1).uniform)
    assert len({next(drawn) for _ in range(50)}) == 50


async def test_patience_counts_from_the_first_loss_until_the_server_is_of_use(
    autojump_clock: MockClock,
) -> None:
    """Attempts do not prolong it; a server that was there begins it anew, with long delays."""
    env = SimEnv(random.Random(1))
    backoff, began = Backoff(env, 5), env.monotonic()
    backoff.begin()
    attempts = 0
    while True:
        await backoff.wait()
        backoff.begin()
        attempts += 1
        if backoff.is_over:
            break
    assert 5 <= env.monotonic() - began <= 5 + LONGEST
    assert 6 <= attempts <= 12
    backoff.forgive()
    assert [backoff.is_over] == [False]
    before = env.monotonic()
    await backoff.wait()
    assert env.monotonic() - before >= LONGEST / 2
    backoff.reset()
    before = env.monotonic()
    await backoff.wait()
    assert env.monotonic() - before <= FIRST
