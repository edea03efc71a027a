"""What a host does with runs that end when it starts, and with what it has read of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.run.crashes import LIMIT as MOST_LOSSES
from perdure.actors.run.events import Activated, RunCreated, RunEnded
from perdure.actors.run.status import Status
from perdure.actors.run.stream import stream_of
from perdure.eventlog import MemoryStore, OutcomeUnknown, Record, StoreFailed, open_log
from perdure.runtime.execution import recovery
from perdure.runtime.execution.executor import Executor
from perdure.runtime.execution.host_context import host_context
from perdure.runtime.execution.recovery import recover
from perdure.runtime.kernel.live_actors import LiveActors
from perdure.runtime.plugins.plugin import declared
from tests.eventlog.conftest import SteadyEnv
from tests.runtime.world import Example, World, world

MANY = 200
LIMIT = 3  # of the plugin: so many are executed at once


class Recorder(MemoryStore):
    """A store that remembers what was in it after each commit, as a crash would leave it."""

    def __init__(self, records: Sequence[Record] = ()) -> None:
        """Begin with what another has left."""
        super().__init__()
        if records:
            super().commit(records)
        self.lengths: list[int] = []

    def commit(self, records: Sequence[Record]) -> None:
        """Write, as one commit with one sync."""
        super().commit(records)
        self.lengths.append(self.head().position)

    def upto(self, position: int) -> list[Record]:
        """All that was written up to a position."""
        return [record for record in self._records if record.position <= position]


async def left_behind(*entries: str, **more: Any) -> list[Record]:
    """Leave runs behind, each called and not ended, in this order."""
    store = MemoryStore()
    async with world(store) as w:
        w.executor.use({"test": replace(declared(Example), limit=None)})
        for entry_id in entries:
            await w.create(entry_id, **more)
        await trio.sleep(1)
    assert sum(record.name == Activated.event_name for record in store._records) >= len(entries)
    return list(store._records)


def ids(records: Sequence[Record]) -> list[str]:
    """The runs in the order in which they were created."""
    created = [record for record in records if record.name == RunCreated.event_name]
    return [record.stream.removeprefix("run/") for record in created]


def check_ended_once(w: World, run_id: str, status: Status) -> None:
    """A run has one end, and nothing follows."""
    (ended,) = w.events(run_id, RunEnded)
    assert ended.outcome == status
    assert w.store.stream_state(stream_of(run_id)).sealed


async def test_runs_that_end_at_recovery_share_commits(autojump_clock: MockClock) -> None:
    """Two hundred ends cost a few syncs and not two hundred."""
    store = Recorder(await left_behind(*["fragile"] * MANY))
    async with world(store) as w:
        assert len(store.lengths) <= 4
        for run_id in ids(store._records):
            check_ended_once(w, run_id, Status.FAILED)


async def test_a_crash_after_any_commit_of_a_recovery_is_only_another_start(
    autojump_clock: MockClock,
) -> None:
    """Whatever was written, the next start ends the others and writes nothing twice."""
    records = await left_behind(*["fragile"] * MANY)
    whole = Recorder(records)
    async with world(whole):
        pass
    assert len(whole.lengths) > 1
    for position in (len(records), *whole.lengths):
        store = MemoryStore()
        store.commit(whole.upto(position))
        async with world(store) as w:
            for run_id in ids(records):
                check_ended_once(w, run_id, Status.FAILED)
        assert store.head().position == whole.head().position


async def test_nothing_is_kept_of_runs_that_end_at_recovery(autojump_clock: MockClock) -> None:
    """Only what waits for its turn is remembered, until it comes."""
    store = Recorder(await left_behind(*["fragile", "polite"] * 10))
    going_on = ids(store._records)[1::2]
    async with world(store) as w:
        await trio.sleep(1)
        assert set(w.executor._histories) == set(going_on[LIMIT:])


async def test_runs_go_on_in_the_order_in_which_they_were_created(
    autojump_clock: MockClock,
) -> None:
    """Whatever ends between them."""
    store = Recorder(await left_behind(*["polite", "fragile"] * 20))
    going_on = ids(store._records)[::2]
    async with world(store) as w:
        await trio.sleep(1)
        assert set(w.executor._executions) == set(going_on[:LIMIT])
        assert list(w.executor._queue._waiting["test"]) == going_on[LIMIT:]


async def test_a_child_is_not_called_again_when_its_parent_ends_at_recovery(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parent is judged before its children, which it takes along, however long it is read."""
    look, seen = LiveActors.look, set[str]()

    async def slow_at_first(runs: Any, stream: str) -> Any:
        if stream not in seen:
            seen.add(stream)
            await trio.sleep(1 / len(seen))  # the parent is the first
        return await look(runs, stream)

    store = Recorder(await left_behind("parent", limit=10, children=5))
    await trio.sleep(20)
    monkeypatch.setattr(recovery, "SHORT", 1)
    monkeypatch.setattr(LiveActors, "look", slow_at_first)
    async with world(store) as w:
        await trio.sleep(1)
    parent, *children = ids(store._records)
    check_ended_once(w, parent, Status.TIMEOUT)
    assert len(children) == 5
    for child in children:
        check_ended_once(w, child, Status.CANCELED)
        assert [event.epoch for event in w.events(child, Activated)] == [1]


async def test_a_log_that_closes_during_a_recovery_is_told_as_that(
    autojump_clock: MockClock,
) -> None:
    """However many runs were being asked, one error says what is wrong."""

    class Broken(Recorder):
        def commit(self, records: Sequence[Record]) -> None:
            raise StoreFailed("the disk is gone")

    records = await left_behind(*["fragile"] * 20)
    env = SteadyEnv()
    store = Broken()
    MemoryStore.commit(store, records)
    with pytest.RaisesGroup(OutcomeUnknown):
        async with open_log(env, store) as log, trio.open_nursery() as nursery:
            executor = Executor(host_context(log, {"test": declared(Example)}))
            await nursery.start(executor.run)
            with pytest.raises(OutcomeUnknown):
                await recover(executor, World(executor, store).open_runs, await log.head())
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("entry_id", "args"),
    [("climb", {"seconds": 600}), ("one_step", {"seconds": 7200})],
    ids=["reports progress", "is in one long step"],
)
@pytest.mark.parametrize("life", [2, 1800], ids=["within seconds", "every half hour"])
async def test_a_long_run_survives_thirty_losses_of_its_host(
    autojump_clock: MockClock, entry_id: str, args: dict[str, Any], life: float
) -> None:
    """Whoever caused them, and however fast they follow each other; then it succeeds (R33)."""
    store = MemoryStore()
    async with world(store) as w:
        run_id = await w.create(entry_id, **args)
        await trio.sleep(life)
    for _ in range(29):
        async with world(store):
            await trio.sleep(life)
    async with world(store) as w:
        assert (await w.end(run_id)).status is Status.SUCCEEDED


async def test_a_run_that_brings_its_hosts_down_is_given_up_at_last(
    autojump_clock: MockClock,
) -> None:
    """It fails with a reason; a run that waits beside it goes on (R33)."""
    store = MemoryStore()
    async with world(store) as w:
        culprit = await w.create("deaf")
        beside = await w.create("nap", seconds=90)
        await trio.sleep(1)
        run = await w.state(culprit)
    losses = 0
    while not run.status.is_terminal:
        losses += 1
        async with world(store) as w:
            run = await w.state(culprit)
            await trio.sleep(1)
    assert losses == MOST_LOSSES
    assert run.error is not None
    assert run.error.code == "HOST_LOST"
    assert f"lost {MOST_LOSSES} times in a row" in run.error.message
    async with world(store) as w:
        assert (await w.end(beside)).status is Status.SUCCEEDED


async def test_one_among_many_is_not_given_up_for_what_another_did(
    autojump_clock: MockClock,
) -> None:
    """How many were suspected is recorded: each loss counts the less."""
    store = MemoryStore()
    store.commit(await left_behind(*["deaf"] * 40))
    for _ in range(MOST_LOSSES):
        async with world(store) as w:
            w.executor.use({"test": replace(declared(Example), limit=None)})
            await trio.sleep(1)
    async with world(store) as w:
        states = [await w.state(run_id) for run_id in ids(store._records)]
        assert {state.status for state in states} == {Status.RUNNING}
        activated = w.events(states[0].created.run_id, Activated)
        assert [event.suspects for event in activated[:2]] == [0, 40]
