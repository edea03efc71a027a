"""Channels: what followers of runs, exports and the log see."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.run.events import ProgressReported
from perdure.eventlog import MemoryStore
from perdure.eventlog.record import START
from perdure.runtime.kernel.channels import Subscription
from perdure.runtime.kernel.channels.service import Frame
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.runs.requests import CancelRun, ExportRun
from tests.runtime.service import (
    TWO_PLUGINS,
    Service,
    events,
    next_frame,
    refused,
    service,
    until_ended,
)


async def kept(s: Service, run_id: str) -> list[dict[str, Any]]:
    """What the export operation lists of a run."""
    return list((await s.export(LOCAL, ExportRun(run_id=run_id)))["items"])  # type: ignore[arg-type]


# Runs


async def test_a_follower_sees_a_run_from_its_creation_to_its_end(
    autojump_clock: MockClock,
) -> None:
    """One addition, then changes; a terminal one is never left out (R9, R36, R43)."""
    async with service() as s:
        subscription = await s.follow("runs", after=await s.cursor())
        run_id = (await s.start("polite"))["run_id"]
        await trio.sleep(1)
        await s.cancel(LOCAL, CancelRun(run_id=run_id))
        await s.finished(run_id)
        seen = await until_ended(subscription)
        assert [change["op"] for change in seen] == ["add", "change", "change", "change"]
        assert [change["status"] for change in seen] == [
            "queued",
            "running",
            "cancel_requested",
            "canceled",
        ]
        assert {change["run_id"] for change in seen} == {run_id}


async def test_filters_let_only_their_runs_pass(autojump_clock: MockClock) -> None:
    """By run, task, plugin, entry, and by the status that is entered (R38, R39, R40, R41)."""
    async with service(plugins=TWO_PLUGINS) as s:
        start = await s.cursor()
        mine = (await s.start("greet", task_id="t1"))["run_id"]
        other = (await s.start("fail", task_id="t2"))["run_id"]
        foreign = (await s.start("greet", plugin_id="other", task_id="t3"))["run_id"]
        reporting = (await s.start("stages", task_id="t4"))["run_id"]
        for run_id in (mine, other, foreign, reporting):
            await s.finished(run_id)

        async def seen(**where: Any) -> list[tuple[str, str]]:
            subscription = await s.follow("runs", after=start, **where)
            return [(change["run_id"], change["status"]) for change in await events(subscription)]

        life = [(mine, "queued"), (mine, "running"), (mine, "succeeded")]
        assert await seen(run_id=mine) == life
        assert await seen(task_id="t1") == life
        assert await seen(entry_id="greet", plugin_id="test") == life
        assert {run_id for run_id, _ in await seen(plugin_id="test")} == {mine, other, reporting}
        theirs = [(foreign, "queued"), (foreign, "running"), (foreign, "succeeded")]
        assert await seen(plugin_id="other") == theirs
        succeeded = [(run_id, "succeeded") for run_id in (mine, foreign, reporting)]
        assert sorted(await seen(status=["succeeded", "failed"])) == sorted(
            [*succeeded, (other, "failed")]
        )
        # A report does not enter the status that its run is in.
        assert len(await seen(run_id=reporting, limit=1)) == 5
        assert await seen(run_id=reporting, status=["running"]) == [(reporting, "running")]
        assert await seen(task_id="t1", status=["failed"]) == []


async def test_a_follower_without_a_cursor_begins_with_the_runs_that_have_not_ended(
    autojump_clock: MockClock,
) -> None:
    """They are listed at one cursor, page by page, and what comes later follows it."""
    async with service() as s:
        ended = (await s.start("greet"))["run_id"]
        await s.finished(ended)
        napping = [
            (await s.start("nap", args={"seconds": 50}, task_id="t"))["run_id"] for _ in range(5)
        ]
        await trio.sleep(1)
        subscription = await s.follow("runs", limit=2)
        frames = [await next_frame(subscription) for _ in range(3)]
        listed: list[Any] = [event for frame in frames for event in frame["events"]]
        assert [event["op"] for event in listed] == ["add"] * 5
        assert [event["run_id"] for event in listed] == napping[::-1]
        assert sorted(event["status"] for event in listed) == ["queued"] * 2 + ["running"] * 3
        assert [frame["cursor"] is None for frame in frames] == [True, True, False]
        late = (await s.start("greet"))["run_id"]
        seen = await until_ended(subscription)
        assert {change["run_id"] for change in seen} == {napping[0], late}
        assert late not in {event["run_id"] for event in listed}

        only = await s.follow("runs", run_id=ended)
        (shown,) = (await next_frame(only))["events"]
        assert (shown["op"], shown["status"]) == ("add", "succeeded")
        queued = await s.follow("runs", status=["queued"], task_id="t")
        assert {e["status"] for e in (await next_frame(queued))["events"]} == {"queued"}


async def test_a_follower_that_reconnects_misses_nothing_and_gets_nothing_twice(
    autojump_clock: MockClock,
) -> None:
    """From the last cursor it saw, through a restart of the server (R44)."""
    store = MemoryStore()
    seen: list[tuple[str, str]] = []
    cursor = None
    async with service(store) as s:
        begin = await s.cursor()
        cursor = begin
    for life in range(4):
        async with service(store) as s:
            await s.start("greet", task_id=f"{life}")
            await s.start("nap", args={"seconds": 30})
            subscription = await s.follow("runs", after=cursor)
            for _ in range(3):
                frame = await next_frame(subscription)
                seen.extend((event["run_id"], event["status"]) for event in frame["events"])
                cursor = frame["cursor"]
    async with service(store) as s:
        await trio.sleep(200)
        subscription = await s.follow("runs", after=cursor)
        seen.extend((e["run_id"], e["status"]) for e in await events(subscription))
        whole = await s.follow("runs", after=begin)
        assert seen == [(e["run_id"], e["status"]) for e in await events(whole)]
        assert len(seen) == len(set(seen)) == 8 * 3


async def test_progress_is_thinned_for_each_run_and_its_last_value_comes(
    autojump_clock: MockClock,
) -> None:
    """At most one delta in 100 ms for a run, whatever others do (R19, R42, R112, R113)."""
    async with service() as s:
        subscription = await s.follow("runs", after=await s.cursor())
        spamming = [(await s.start("spam", args={"n": 1000}))["run_id"] for _ in range(2)]
        arrivals: dict[str, list[float]] = {run_id: [] for run_id in spamming}
        last: dict[str, float | None] = {}
        ended = 0
        while ended < 2:
            for change in (await next_frame(subscription))["events"]:
                last[change["run_id"]] = change["progress"]
                ended += change["status"] == "succeeded"
                if "message" in change:
                    arrivals[change["run_id"]].append(change["updated_at"])
        for run_id in spamming:
            times = arrivals[run_id]
            lasted = times[-1] - times[0]
            assert 5 <= len(times) <= lasted / 0.1 + 2  # the last one comes with the end
            assert min(b - a for a, b in pairwise(times[:-1])) >= 0.1 - 1e-6
            assert last[run_id] == 0.999
            reported = s.world.events(run_id, ProgressReported)
            assert len(times) == len(reported)


async def test_messages_and_stages_are_on_the_channel(autojump_clock: MockClock) -> None:
    """With the progress they belong to; the status stays what it is (R97, R100)."""
    async with service() as s:
        subscription = await s.follow("runs", after=await s.cursor())
        run_id = (await s.start("stages"))["run_id"]
        seen = await until_ended(subscription)
        told = [(c.get("stage"), c.get("message"), c["progress"], c["status"]) for c in seen[2:-1]]
        assert told == [
            ("loading", "the first part", None, "running"),
            (None, "x", 0.4, "running"),
        ]
        assert (await s.read(run_id))["stage"] == "loading"


# Exports


async def test_an_item_is_kept_before_anybody_hears_of_it(autojump_clock: MockClock) -> None:
    """Whoever is told can read it; only additions ever come (R45, R46, R49, R55)."""
    async with service() as s:
        subscription = await s.follow("export", after=await s.cursor())
        run_id = (await s.start("exports"))["run_id"]
        heard: list[Any] = []
        while len(heard) < 4:
            for item in (await next_frame(subscription))["events"]:
                heard.append(item)
                assert item in await kept(s, run_id)
        assert heard == await kept(s, run_id)
        assert {item["run_id"] for item in heard} == {run_id}
        await s.finished(run_id)
        assert await kept(s, run_id) == heard


async def test_exports_are_filtered_by_run_and_replayed(autojump_clock: MockClock) -> None:
    """From the beginning or from a cursor, only that run's items (R31, R51)."""
    async with service() as s:
        first = (await s.start("exports"))["run_id"]
        await s.finished(first)
        cursor = await s.cursor()
        second = (await s.start("exports"))["run_id"]
        await s.finished(second)
        for run_id in (first, second):
            assert await events(await s.follow("export", run_id=run_id)) == await kept(s, run_id)
        assert await events(await s.follow("export", after=cursor)) == await kept(s, second)
        assert await events(await s.follow("export", run_id=first, after=cursor)) == []


async def test_a_follower_that_does_not_pull_delays_nobody(autojump_clock: MockClock) -> None:
    """Runs go on, and when it pulls again every item and every end is there (R118)."""
    async with service() as s:
        slow = await s.follow("export", after=await s.cursor())
        ends = await s.follow("runs", after=await s.cursor(), status=["succeeded"])
        ids = [(await s.start("exports"))["run_id"] for _ in range(50)]
        for run_id in ids:
            await s.finished(run_id)
        items = await events(slow)
        assert len(items) == 200
        assert len({item["export_item_id"] for item in items}) == 200
        assert {change["run_id"] for change in await events(ends)} == set(ids)


# The log


async def test_operators_follow_the_records_themselves(autojump_clock: MockClock) -> None:
    """Each record as it was stored, and with each frame the cursor to go on from."""
    async with service() as s:
        run_id = (await s.start("greet", trace_id="tr"))["run_id"]
        await s.finished(run_id)
        records = await events(await s.follow("log"))
        assert [r["position"] for r in records] == list(range(1, len(records) + 1))
        assert records[0]["name"] == "run.created"
        assert records[0]["stream"] == f"run/{run_id}"
        assert records[0]["body"]["entry_id"] == "greet"
        assert {r["metadata"]["trace"] for r in records} == {"tr"}  # whoever wrote them
        assert [r["sealed"] for r in records] == [False] * (len(records) - 1) + [True]
        first = await next_frame(await s.follow("log", limit=2))
        assert first["events"] == records[:2]
        assert await events(await s.follow("log", after=first["cursor"])) == records[2:]
        mine = await s.follow("log", run_id=run_id)
        assert await events(mine) == records


async def test_a_bad_cursor_is_refused(autojump_clock: MockClock) -> None:
    """Never a silent restart."""
    async with service() as s:
        for channel in ("runs", "export", "log"):
            await refused("INVALID_CURSOR", partial(s.follow, channel, after="rubbish"))
            await refused("RUN_NOT_FOUND", partial(s.follow, channel, run_id="nobody"))


# Ends


@pytest.mark.parametrize("channel", ["runs", "export", "run", "log"])
async def test_following_one_run_ends_with_the_run(channel: str, autojump_clock: MockClock) -> None:
    """On every channel, live, from the past, and for whoever comes back after the end."""
    async with service() as s:
        run_id = (await s.start("greet"))["run_id"]
        live = await s.follow(channel, run_id=run_id, after=await s.cursor())
        last = await _last(live)
        assert last["end"]
        past = await s.follow(channel, run_id=run_id, after=None)
        assert (await _last(past))["end"]
        again = await s.follow(channel, run_id=run_id, after=last["cursor"])
        assert await next_frame(again) == last | {"events": [], "live": True}


async def test_an_end_is_told_though_a_filter_hides_it(autojump_clock: MockClock) -> None:
    """Whoever waits for one status of one run is told that it will not come."""
    async with service() as s:
        run_id = (await s.start("greet"))["run_id"]
        subscription = await s.follow("runs", run_id=run_id, status=["canceled"])
        assert (await _last(subscription))["end"]


async def test_the_channel_of_one_run_has_its_changes_and_what_it_put_out(
    autojump_clock: MockClock,
) -> None:
    """In the order of the log, each told apart."""
    async with service() as s:
        run_id = (await s.start("greet"))["run_id"]
        await s.finished(run_id)
        seen = await events(await s.follow("run", run_id=run_id))
        assert [next(iter(event)) for event in seen] == ["run", "run", "export", "run"]
        await refused("VALIDATION_ERROR", partial(s.follow, "run"))


async def test_each_event_of_a_delivery_has_a_cursor(autojump_clock: MockClock) -> None:
    """Whoever stops in the middle of a delivery goes on from there (R44)."""
    async with service() as s:
        run_id = (await s.start("greet"))["run_id"]
        await s.finished(run_id)
        subscription = await s.follow("runs", run_id=run_id, after=s.node.log.cursor(START))
        delivery = await subscription.next_delivery(100)
        statuses = [one.as_event()["status"] for one in delivery.events]
        for number, cursor in enumerate(subscription.cursors(delivery), 1):
            rest = await events(await s.follow("runs", run_id=run_id, after=cursor))
            assert [event["status"] for event in rest] == statuses[number:]


async def _last(subscription: Subscription) -> Frame:
    while True:
        frame = await next_frame(subscription)
        if frame["end"]:
            return frame
