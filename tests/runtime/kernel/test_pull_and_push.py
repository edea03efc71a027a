"""Both ways to be served, by pulling and in a group, give what the log says, in whatever pieces."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import pytest
import trio
from hypothesis import example, given
from trio.testing import MockClock

from perdure.eventlog.filter import EVERYTHING, Filter
from perdure.eventlog.follow import Follow, FollowLimits
from perdure.eventlog.record import Mark
from perdure.runtime.kernel.channels import Subscription
from perdure.runtime.kernel.channels.groups import Groups
from perdure.runtime.kernel.channels.selection import Portion, Selection
from tests.fuzz import examples
from tests.runtime.kernel.followed_log import (
    HEARTBEAT,
    Client,
    Log,
    Plan,
    Shown,
    Told,
    compare,
    plans,
    record,
)

NOTHING_TO_SHOW = Plan(  # they pass, and a follower that pulls is far behind them
    records=[record(position, "a", bytes(2)) for position in range(1, 8)],
    commits=[3, 2],
    tail=3,
    where=EVERYTHING,
    ends_with=None,
    limit=4,
    pulls=[4],
    takes=[True],
)


@examples()
@given(plans())
@example(NOTHING_TO_SHOW)
def test_pulling_and_pushing_give_the_same_in_any_pieces(plan: Plan) -> None:
    """Each delivery is what the log holds between two cursors, and no cursor is skipped (R36)."""
    compare(plan)


@pytest.mark.parametrize("pushed", [False, True])
async def test_an_end_before_the_cursor_is_told_though_others_go_on(
    pushed: bool, autojump_clock: MockClock
) -> None:
    """What is followed had ended, and its scope had not: whoever comes late is told both."""
    late = replace(NOTHING_TO_SHOW, where=Filter(scopes=frozenset("s")), ends_with="a")
    log = Log(late)
    log.commit([record(1, "a", bytes([1, 0]), seal=1), record(2, "b", bytes([1, 0]))])
    limits = FollowLimits()
    groups = Groups(log, limits)

    async def has_ended(_: Mark) -> bool:
        return True

    selection = late.selection()
    follow = Follow(log, Mark(1, b""), selection.read, limits)
    subscription = Subscription(selection, follow, has_ended=has_ended)
    client = Client(late, subscription, groups if pushed else None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(groups.run)
        with trio.fail_after(1):
            await client.follow()
        nursery.cancel_scope.cancel()
    assert client.told == [Told([Shown(2, 0, "", is_report=False).event], 2, end=True)]


# Planted differences

LIVE = replace(NOTHING_TO_SHOW, commits=[1], tail=100, limit=100)  # all is pushed, one by one
ONE, TWO, THREE = (bytes([count, 0]) for count in (1, 2, 3))
REPORT = bytes([1, 1])


real_portion = Selection.portion


def pushed(read: Filter) -> bool:
    """Tell whether it is a group that asks."""
    return read is EVERYTHING


def reports_kept(self: Selection, *args: Any, read: Filter, shown: Any) -> Portion:
    """Thin for those that pull, and forget it in a group."""
    with mock.patch.object(Selection, "_thinned", lambda _, events: events):
        unthinned = real_portion(self, *args, read=read, shown=shown)
    return unthinned if pushed(read) else real_portion(self, *args, read=read, shown=shown)


def record_split(self: Selection, records: Any, limit: int, *, read: Filter, shown: Any) -> Portion:
    """Cut exactly at the limit, through a record."""
    whole = real_portion(self, records, limit, read=read, shown=shown)
    return whole if pushed(read) else whole._replace(events=whole.events[:limit])


def end_missed(self: Selection, *args: Any, read: Filter, shown: Any) -> Portion:
    """Look for the end only among what passes, in a group."""
    portion = real_portion(self, *args, read=read, shown=shown)
    return portion._replace(end=bool(portion.end and portion.events)) if pushed(read) else portion


def bound_ignored(self: Selection, records: Any, limit: int, *, read: Filter, shown: Any) -> Portion:
    """Push all there is at once."""
    return real_portion(self, records, 1000 if pushed(read) else limit, read=read, shown=shown)


def filter_ignored(self: Selection, *args: Any, read: Filter, shown: Any) -> Portion:
    """Take what was read for what passes, as if every filter were applied when reading."""
    return real_portion(self, *args, read=self.where, shown=shown)


async def silent(self: Groups) -> None:
    """Let no group's heart beat."""
    self._beats_at = trio.current_time() + HEARTBEAT


def place_lost(self: Follow, mark: Mark) -> None:
    """Go on after a group from where the pulling stopped."""


portion = partial(mock.patch.object, Selection, "portion")


@pytest.mark.parametrize(
    ("plant", "plan"),
    [
        pytest.param(
            lambda: portion(reports_kept),
            replace(
                LIVE,
                records=[record(1, "a", ONE), record(2, "a", REPORT), record(3, "a", REPORT)],
                commits=[1, 2],
            ),
            id="thinned-on-one-path",
        ),
        pytest.param(
            lambda: portion(record_split),
            replace(LIVE, records=[record(1, "a", THREE)], limit=2),
            id="record-split",
        ),
        pytest.param(
            lambda: portion(end_missed),
            replace(
                LIVE,
                records=[record(1, "b", ONE), record(2, "b", ONE, name="y", seal=1)],
                where=Filter(streams=frozenset("b")),
                ends_with="b",
            ),
            id="end-missed",
        ),
        pytest.param(
            lambda: portion(bound_ignored),
            replace(
                LIVE,
                records=[record(1, "a", ONE), record(2, "a", TWO), record(3, "a", TWO)],
                commits=[1, 2],
                limit=2,
            ),
            id="bound-ignored",
        ),
        pytest.param(
            lambda: portion(filter_ignored),
            replace(
                LIVE,
                records=[record(1, "a", ONE), record(2, "a", ONE), record(3, "b", ONE)],
                commits=[1, 2],
                where=Filter(streams=frozenset("a")),
            ),
            id="filter-ignored",
        ),
        pytest.param(
            lambda: mock.patch.object(Follow, "move_to", place_lost),
            replace(
                LIVE,
                records=[record(number, "a", ONE) for number in range(1, 5)],
                takes=[True, False],
            ),
            id="place-lost",
        ),
        pytest.param(
            lambda: mock.patch.object(Groups, "_beat", silent),
            replace(LIVE, records=[record(1, "a", ONE), record(2, "a", ONE, name="y")]),
            id="no-heartbeat",
        ),
    ],
)
def test_a_difference_between_the_two_is_found(
    plant: Callable[[], AbstractContextManager[Any]], plan: Plan
) -> None:
    """The comparison sees what it is for, and finds nothing where nothing is planted."""
    compare(plan)
    with plant(), pytest.raises(AssertionError):
        compare(plan)
