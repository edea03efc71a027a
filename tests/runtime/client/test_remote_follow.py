"""A follow over several connections, without any: what it is told and what its user gets."""

from __future__ import annotations

import pytest
import trio

from perdure.runtime.client.conversation import CaughtUp, Ended, Events, Refused
from perdure.runtime.client.remote_follow import WINDOW, RemoteFollow
from perdure.runtime.kernel.errors import OperationError


async def test_it_goes_on_after_what_was_received_and_not_yet_taken() -> None:
    """A lost connection loses nothing that had come, and asks for nothing again."""
    follow = RemoteFollow({"channel": "log"}, None)
    assert follow.begin() == WINDOW
    follow.take(Events(1, ["a", "b"], "two"))
    follow.lose()
    assert follow.cursor == "two"
    assert follow.begin() == WINDOW - 2
    follow.take(Events(1, ["c"], "three"))
    assert (await anext(follow)).events == ["a", "b"]
    assert (await anext(follow)).events == ["c"]


async def test_a_listing_that_is_torn_begins_again_and_says_so() -> None:
    """What its user has not taken is dropped; what it has taken is to be forgotten."""
    follow = RemoteFollow({"channel": "runs"}, None)
    follow.begin()
    follow.take(Events(1, ["a"], None))
    follow.lose()
    assert follow.cursor is None
    follow.take(Events(1, ["a"], None))
    first = await anext(follow)
    assert (first.events, first.restarted) == (["a"], False)
    follow.take(Events(1, ["b"], None))
    for _ in range(2):
        follow.lose()
        follow.take(Events(1, ["b"], None))
    follow.take(Events(1, ["c"], "whole"))
    again = [await anext(follow), await anext(follow)]
    assert [(each.events, each.restarted) for each in again] == [(["b"], True), (["c"], False)]
    follow.lose()
    follow.take(Events(1, ["d"], "next"))
    assert not (await anext(follow)).restarted


async def test_what_waits_is_bounded_by_its_window() -> None:
    """Credit is given as events are taken, so much as to fill the window; heartbeats are one."""
    given: list[int] = []

    follow = RemoteFollow({"channel": "log"}, None, limit=3)
    assert follow.begin() == 3
    follow.grant = given.append
    follow.take(Events(1, ["a"], "1"))
    follow.take(Events(1, ["b", "c"], "3"))
    for number in range(100):
        follow.take(Events(1, [], f"heartbeat {number}"))
    await anext(follow)
    last = await anext(follow)
    assert given == [1, 2]
    assert (last.events, last.cursor) == (["b", "c"], "heartbeat 99")


async def test_a_record_of_many_events_is_paid_for() -> None:
    """Its events stay together, more than the window has: credit is given until more can come."""
    given: list[int] = []
    follow = RemoteFollow({"channel": "log"}, None, limit=3)
    credit = follow.begin()
    follow.grant = given.append
    follow.take(Events(1, list(range(10)), "10"))
    await anext(follow)
    assert credit - 10 + sum(given) == 3


async def test_a_wait_that_is_cancelled_loses_nothing() -> None:
    """Neither the delivery nor the credit for it."""
    given: list[int] = []
    follow = RemoteFollow({"channel": "log"}, None, limit=3)
    follow.begin()
    follow.grant = given.append
    follow.take(Events(1, ["a", "b", "c"], "3"))
    with trio.move_on_after(0) as waited:
        await anext(follow)
    assert waited.cancelled_caught
    assert given == []
    assert (await anext(follow)).events == ["a", "b", "c"]
    assert given == [3]


async def test_it_ends_with_what_it_follows_and_not_with_its_server() -> None:
    """A server that drains is left for the next one; live stays live."""
    follow = RemoteFollow({"channel": "run"}, "here")
    follow.take(CaughtUp(1, "live"))
    follow.take(Ended(1, "draining", "live"))
    was_over = follow.is_over
    follow.lose()
    follow.take(Ended(2, "terminal", "end"))
    assert (was_over, follow.is_over) == (False, True)
    seen = [delivery async for delivery in follow]
    assert [(each.live, each.end, each.cursor) for each in seen] == [(True, True, "end")]


async def test_an_error_comes_after_what_was_received() -> None:
    """Nothing that came before it is lost."""
    follow = RemoteFollow({"channel": "log"}, None)
    follow.take(Events(1, ["a"], "1"))
    follow.take(Refused(1, OperationError("INVALID_CURSOR", "no")))
    assert (await anext(follow)).events == ["a"]
    with pytest.raises(OperationError):
        await anext(follow)
    assert follow.is_over
