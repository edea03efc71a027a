"""Runs that were started by runs: in records, lists, and channels."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from perdure.actors.run.core import RUN
from perdure.eventlog import MemoryStore
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.runs.requests import ListRuns
from tests.runtime.service import Service, events, refused, service, until_ended


async def family(s: Service, children: int = 2) -> tuple[str, list[str]]:
    """Start a run that starts others, and give the id of each, newest first."""
    parent = (await s.start("parent", args={"children": children}))["run_id"]
    await trio.sleep(1)
    page = await s.list(LOCAL, ListRuns(started_by=parent))
    return parent, [run["run_id"] for run in page["runs"]]


async def test_a_child_names_the_run_that_started_it(autojump_clock: MockClock) -> None:
    """And its parent how many it has started; a run of nobody else names none."""
    async with service() as s:
        parent, children = await family(s)
        assert len(children) == 2
        record = await s.read(parent)
        assert (record["started_by"], record["children"]) == (None, 2)
        for child in children:
            record = await s.read(child)
            assert (record["started_by"], record["children"]) == (parent, 0)


async def test_lists_are_filtered_by_the_run_that_started_them(autojump_clock: MockClock) -> None:
    """By one, or by none; together with other filters, and at any moment."""
    async with service() as s:
        other = (await s.start("greet"))["run_id"]
        before = await s.cursor()
        parent, children = await family(s)
        tops = await s.list(LOCAL, ListRuns(top_level=True))
        assert [run["run_id"] for run in tops["runs"]] == [parent, other]
        assert (await s.list(LOCAL, ListRuns(started_by=other)))["runs"] == []
        found = await s.list(LOCAL, ListRuns(started_by=parent, status=["running"], limit=1))
        assert [run["run_id"] for run in found["runs"]] == children[:1]
        assert found["next_after"] is not None
        then = await s.list(LOCAL, ListRuns(started_by=parent, at=before))
        assert then["runs"] == []
        await refused("VALIDATION_ERROR", lambda: s.call("runs.list", {"started_by": ""}))


async def test_children_can_be_followed(autojump_clock: MockClock) -> None:
    """The channel begins with those that have not ended, and shows no other run."""
    async with service() as s:
        parent, children = await family(s)
        follow = await s.follow("runs", started_by=parent)
        assert {event["run_id"] for event in await events(follow)} == set(children)
        await s.start("greet")
        ended = {event["run_id"] for event in await until_ended(follow)}
        assert ended
        assert ended <= set(children)


async def test_children_are_canceled_together(autojump_clock: MockClock) -> None:
    """What changes many runs takes the same conditions."""
    async with service() as s:
        parent, children = await family(s)
        asked = {"started_by": parent}
        counted = await s.call("runs.cancel_many", asked)
        assert counted["count"] == 2
        done = await s.call("runs.cancel_many", {**asked, "count": 2, "at": counted["cursor"]})
        assert sorted(done["run_ids"]) == sorted(children)
        assert (await s.read(parent))["status"] == "running"


async def test_only_a_child_has_the_field_that_is_filtered_by(autojump_clock: MockClock) -> None:
    """The records of other runs are stored as they always were."""
    store = MemoryStore()
    async with service(store) as s:
        parent, children = await family(s, 1)
        states = {run_id: await s.world.state(run_id) for run_id in (parent, *children)}
    assert "started_by" not in RUN.describe(None, states[parent])
    assert RUN.describe(None, states[children[0]])["started_by"] == parent
