"""A feature that lives here alone: every part of it works, and nothing elsewhere knows it."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from click.testing import CliRunner
from trio.testing import MockClock

from perdure.actors.run.events import RunCreated
from perdure.actors.scope_folding import fold_scope
from perdure.eventlog import Append, MemoryStore, RealEnv, SqliteStore, open_log
from perdure.eventlog.snapshots import MemorySnapshots
from perdure.runtime.cli.program import program
from perdure.runtime.execution.creator import first_write
from perdure.runtime.features import FEATURES
from perdure.runtime.http.app import create_app
from perdure.runtime.http.event_routes import event_routes
from perdure.runtime.kernel.completion import completed
from perdure.runtime.kernel.data_directory import DataDir
from perdure.runtime.kernel.features import Features
from perdure.runtime.kernel.local_node import open_local_node
from perdure.runtime.kernel.log_reader import open_reader
from perdure.runtime.kernel.node import Node, open_node
from perdure.runtime.kernel.principal import LOCAL, Principal
from perdure.runtime.kernel.settings import Settings, SettingsError, SettingsTable
from perdure.runtime.runs.feature import RunsFeature
from tests.counters.feature import CounterSettings, CountersFeature, CountersPart
from tests.counters.rules import COUNTER, COUNTER_KIND, Count
from tests.features import TRIED
from tests.repository.tree import name, python_files
from tests.runtime.http.sse import following
from tests.runtime.service import Service, events, next_frame, refused, service
from tests.runtime.websocket.harness import serving


async def opened(s: Service, name: str = "steps", **more: Any) -> str:
    """Open a counter."""
    answer = await s.call("counters.open", {"name": name, **more})
    return str(answer["counter"]["counter_id"])


async def run_in_scope(s: Service, counter_id: str, entry_id: str = "greet", **args: Any) -> str:
    """Create a run in the scope of a counter, and have it executed."""
    env = s.node.env
    created = RunCreated(
        run_id=str(env.new_id()),
        plugin_id="test",
        entry_id=entry_id,
        args=args,
        tenant="local",
        principal="local",
        root_run_id="r",
        attempt=1,
        at=env.now(),
    )
    write = replace(first_write(env, created), scope=COUNTER_KIND.scope(counter_id))
    await s.node.log.append(Append([write]))
    s.world.executor.dispatch(created.run_id, created.plugin_id)
    return created.run_id


def test_the_generic_tests_have_found_it() -> None:
    """They try what lies in the tests beside what ships, and no list had to be changed."""
    assert "counters" in [feature.name for feature in TRIED]
    assert "counters" not in [feature.name for feature in FEATURES]


def test_nothing_elsewhere_knows_it() -> None:
    """No file outside of its package names it, those of the packages that ship least of all."""
    named = re.compile(r"CountersFeature|tests\.counters|counter_limit")
    names = {name(path) for path in python_files() if named.search(path.read_text("utf-8"))}
    assert "tests/counters/feature.py" in names
    assert {each for each in names if not each.startswith("tests/counters/")} == set()


# Operations, errors, settings


async def test_a_counter_counts(autojump_clock: MockClock) -> None:
    """Operations are asked through the one table, and the past can be read."""
    async with service() as s:
        counter_id = await opened(s)
        first = await s.call("counters.count", {"counter_id": counter_id})
        second = await s.call("counters.count", {"counter_id": counter_id, "by": 4})
        assert (first["counter"]["count"], second["counter"]["count"]) == (1, 5)
        then = await s.call("counters.get", {"counter_id": counter_id, "at": first["cursor"]})
        assert then["counter"]["count"] == 1
        page = await s.call("counters.list", {})
        assert page["counter_ids"] == [counter_id]


async def test_what_goes_wrong_is_in_its_own_words(autojump_clock: MockClock) -> None:
    """Its refusals have codes of its own, and its dialect another name for a common one."""
    async with service() as s:
        counter_id = await opened(s)
        asked = {"counter_id": counter_id, "by": 600}
        await s.call("counters.count", asked)
        error = await refused("LIMIT_REACHED", partial(s.call, "counters.count", asked))
        assert error.details == {"limit": 1000}
        await refused(
            "BAD_COUNT", partial(s.call, "counters.count", {"counter_id": counter_id, "by": 0})
        )
        await s.call("counters.count", {"counter_id": counter_id, "colour": "red"})  # ignored
        await refused("COUNTER_NOT_FOUND", partial(s.call, "counters.get", {"counter_id": "none"}))
        stranger = Principal("other", "other")
        for name in ("counters.get", "counters.count", "counters.close"):
            call = partial(s.call, name, {"counter_id": counter_id}, stranger)
            await refused("COUNTER_NOT_FOUND", call)


async def test_a_key_stands_for_a_counter_for_good(autojump_clock: MockClock) -> None:
    """A claim may name any object: the same key finds the same counter, also when it is closed."""
    async with service() as s:
        ask = partial(opened, s, idempotency_key="k")
        counter_id = await ask()
        await s.call("counters.close", {"counter_id": counter_id})
        await trio.sleep(10 * 24 * 3600)
        assert await ask() == counter_id
        error = await refused("IDEMPOTENCY_CONFLICT", partial(ask, "other"))
        assert error.details is not None
        assert error.details["counter_id"] == counter_id


def test_it_has_settings(tmp_path: Path) -> None:
    """Set like all others, refused like all others, and gone with the feature."""
    table = SettingsTable(TRIED.settings)
    loaded = table.load({}, {"PERDURE_COUNTER_LIMIT": "7"}, tmp_path)
    assert loaded.settings.of(CounterSettings).counter_limit == 7
    with pytest.raises(SettingsError, match="counter_limit"):
        table.load({}, {"PERDURE_COUNTER_LIMIT": "0"}, tmp_path)
    with pytest.raises(SettingsError, match="COUNTER_LIMIT"):
        SettingsTable(FEATURES.settings).load({}, {"PERDURE_COUNTER_LIMIT": "7"}, tmp_path)


# The scope


async def test_a_counter_knows_the_runs_in_its_scope(autojump_clock: MockClock) -> None:
    """Whatever its neighbours wrote before the question is in the answer, and in the decision."""
    async with service() as s:
        counter_id, other = await opened(s), await opened(s, "other")
        run_id = await run_in_scope(s, counter_id, "nap", seconds=10)
        counted = await s.call("counters.count", {"counter_id": counter_id})
        assert counted["counter"]["runs"] == {f"run/{run_id}": "open"}
        await s.world.end(run_id)
        read = await s.call("counters.get", {"counter_id": counter_id})
        assert read["counter"]["runs"] == {f"run/{run_id}": "succeeded"}
        assert (await s.call("counters.get", {"counter_id": other}))["counter"]["runs"] == {}
        before = await s.call("counters.get", {"counter_id": counter_id, "at": counted["cursor"]})
        assert before["counter"]["runs"] == {f"run/{run_id}": "open"}


async def test_a_decision_is_made_at_the_head_of_the_scope(autojump_clock: MockClock) -> None:
    """However busy the neighbours are, no decision is made on a state that is out of date."""
    async with service(runs=50) as s:
        counter_id = await opened(s)
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                await run_in_scope(s, counter_id, "slow_exports", n=3)
                await run_in_scope(s, counter_id, "spam", n=200)
            for _ in range(40):
                nursery.start_soon(s.call, "counters.count", {"counter_id": counter_id, "by": 1})
                await trio.sleep(0.01)
        records = (await s.node.log.read_scope(COUNTER_KIND.stream(counter_id))).records
        counter = None
        for record in records:
            if record.name == "counter.counted":
                assert counter is not None
                assert COUNTER.events.decode(record).open_runs == counter.open_runs
            counter = COUNTER.evolve_record(counter, record, COUNTER_KIND.stream(counter_id))
        assert counter is not None
        assert counter.count == 40


async def test_the_live_state_is_the_fold_of_the_scope(autojump_clock: MockClock) -> None:
    """With the positions and commit times of the log, through snapshots and restarts."""
    store, snapshots = MemoryStore(), MemorySnapshots()
    counter_id = ""
    for _ in range(3):
        async with service(store, snapshots=snapshots) as s:
            counter_id = counter_id or await opened(s)
            for _ in range(3):
                await s.world.end(await run_in_scope(s, counter_id, "exports"))
                await s.call("counters.count", {"counter_id": counter_id})
            stream = COUNTER_KIND.stream(counter_id)
            live = await s.node.part(CountersPart).actors.look(stream)
            stored = await fold_scope(s.node.log, COUNTER, stream)
            assert stored is not None
            assert live.state == stored.state
            assert live.state.seen > 0
            assert live.state.moved_at > 0
            assert (live.mark, live.version) == (stored.mark, stored.version)


# Routes, channels, lists, commands


async def test_it_is_served_and_described(autojump_clock: MockClock) -> None:
    """Its routes answer, and documents, capabilities and figures have it."""
    async with service() as s:
        app = create_app(s.node, Settings())
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://perdure.test") as http:
            made = await http.post("/counters", json={"name": "a"})
            counter_id = made.json()["counter"]["counter_id"]
            counted = await http.post(f"/counters/{counter_id}/count", json={"by": 3})
            assert counted.json()["counter"]["count"] == 3
            refused = await http.post(f"/counters/{counter_id}/count", json={"by": 3000})
            assert (refused.status_code, refused.json()["error"]["code"]) == (422, "BAD_COUNT")
            assert (await http.get("/counters")).json()["counter_ids"] == [counter_id]
            document = (await http.get("/openapi.json")).json()
            assert "/counters/{counter_id}/count" in document["paths"]
            assert {"name": "counters", "description": "Count."} in document["tags"]
            told = (await http.get("/capabilities")).json()
            assert told["counts"] == "up"
            assert told["limits"]["count"] == 1000
            assert "ticks" in told["channels"]
            assert "LIMIT_REACHED" in told["errors"]
        shown = [each.name for each in await s.node.part(CountersPart).figures()]
        assert shown == ["counters_live"]


async def test_the_events_of_a_record_are_not_taken_apart(autojump_clock: MockClock) -> None:
    """A record gives several events; no page ends between them, whatever its limit."""
    async with service() as s:
        counter_id = await opened(s)
        for by in (3, 2, 4, 1):
            await s.call("counters.count", {"counter_id": counter_id, "by": by})
        start = s.node.log.cursor((await s.node.log.read_all(limit=1)).records[0].mark)
        subscription = await s.follow("ticks", after=start, limit=2)
        sizes: list[int] = []
        cursors: set[str | None] = set()
        while sum(sizes) < 10:
            frame = await next_frame(subscription)
            sizes.append(len(frame["events"]))
            cursors.add(frame["cursor"])
        assert sizes == [3, 2, 4, 1]
        assert len(cursors) == 4
        again = await s.follow("ticks", after=start)
        assert [each["tick"] for each in await events(again)] == [1, 2, 3, 1, 2, 1, 2, 3, 4, 1]


async def test_only_the_last_event_of_a_record_has_an_id(autojump_clock: MockClock) -> None:
    """So a browser that comes back in the middle of a record gets all of it again."""
    async with service() as s:
        counter_id = await opened(s)
        await s.call("counters.count", {"counter_id": counter_id, "by": 3})
        await s.call("counters.close", {"counter_id": counter_id})
        app = create_app(s.node, Settings(), event_routes(s.node.features))
        async with following(app, f"/counters/{counter_id}/events") as stream:
            await stream.over.wait()
            ticks = await stream.until("tick", 3)
        assert [event.data["tick"] for event in ticks] == [1, 2, 3]
        assert [event.last_id for event in ticks][:2] == ["", ""]
        assert ticks[2].last_id
        assert stream.events[-1].kind == "end"


async def test_followers_of_two_scopes_do_not_share_a_group(autojump_clock: MockClock) -> None:
    """Live followers are grouped by their whole filter: each gets what it asked for."""
    async with service() as s, serving(s) as served, served.connect() as peer:
        first, second = await opened(s), await opened(s, "other")
        for number, counter_id in enumerate((first, second)):
            follow = {"channel": "ticks", "counter_id": counter_id}
            await peer.send({"id": number, "follow": follow})
            await peer.until("live")
        await s.call("counters.count", {"counter_id": second, "by": 2})
        await s.call("counters.count", {"counter_id": first, "by": 1})
        seen: dict[int, list[Any]] = {0: [], 1: []}
        while len(seen[0]) + len(seen[1]) < 3:
            message = await peer.receive()
            seen[message["id"]] += message.get("events", [])
        assert {event["counter_id"] for event in seen[0]} == {first}
        assert {event["counter_id"] for event in seen[1]} == {second}


async def test_a_credit_may_be_passed_by_the_rest_of_a_record(autojump_clock: MockClock) -> None:
    """Credit counts events, and a record is not taken apart: the next one waits."""
    async with service() as s, serving(s) as served, served.connect() as peer:
        counter_id = await opened(s)
        for _ in range(3):
            await s.call("counters.count", {"counter_id": counter_id, "by": 3})
        await peer.send({"id": 1, "follow": {"channel": "ticks"}, "after": None, "credit": 2})
        first = await peer.receive()
        assert len(first["events"]) == 3
        with trio.move_on_after(5) as waited:
            await peer.receive()
        assert waited.cancelled_caught
        await peer.send({"id": 1, "credit": 2})
        assert len((await peer.receive())["events"]) == 3


async def test_commands_and_readers_know_it(tmp_path: Path) -> None:
    """On real files: listed beside the node that keeps them, and from the terminal."""
    features = TRIED
    settings = SettingsTable(features.settings).settings({"data_dir": str(tmp_path)})
    async with open_local_node(settings, features) as node:
        counter_id = await made_by(node)
        with open_reader(DataDir(tmp_path), features) as reader:
            page = completed(reader.operations.call(LOCAL, "counters.list", {}))
            assert page["counter_ids"] == [counter_id]
    assert (tmp_path / "counters.db").exists()
    result = CliRunner().invoke(
        program(features), ["counters", "--json", "--data-dir", str(tmp_path)]
    )
    assert json.loads(result.output)["counters"][0]["count"] == 2
    shown = CliRunner().invoke(program(features), ["counters", "--data-dir", str(tmp_path)])
    assert shown.output.splitlines()[0].split() == ["COUNTER", "COUNT"]
    missing = CliRunner().invoke(program(FEATURES), ["counters"])
    assert "No such command" in missing.output
    helped = CliRunner().invoke(program(features), ["--help"])
    assert "List counters." in helped.output


async def made_by(node: Node) -> str:
    """Open a counter and count to two."""
    answer = await node.operations.call(LOCAL, "counters.open", {"name": "a"})
    counter_id = str(answer["counter"]["counter_id"])
    await node.operations.call(LOCAL, "counters.count", {"counter_id": counter_id, "by": 2})
    return counter_id


# Snapshots of a scope


async def test_a_snapshot_is_kept_when_it_is_worth_its_bytes(tmp_path: Path) -> None:
    """Not before the records since the last one weigh as much as the state; then it is used."""
    env, snapshots = RealEnv(), MemorySnapshots()
    with closing(SqliteStore.open(tmp_path / "log.db", env=env)) as store:
        async with open_log(env, store, snapshots=snapshots) as log:
            features = Features([RunsFeature(loaded=None), CountersFeature()])
            settings = SettingsTable(features.settings).settings(
                {"demo": False, "counter_limit": 10**6}
            )
            async with open_node(log, features, settings=settings) as node:
                counter_id = await made_by(node)
                part, stream = node.part(CountersPart), COUNTER_KIND.stream(counter_id)
                command = Count(by=1, at=1)
                for _ in range(1000):
                    await part.actors.ask(stream, command)
                kept = (await part.actors.look(stream)).snapshot
                assert 0 < kept < (await log.head()).position
                part.actors.let_go()
                again = await part.actors.look(stream)
                assert (again.state.count, again.snapshot) == (1002, kept)


def test_two_features_may_not_bring_the_same_thing() -> None:
    """A name that two features claim is refused when they are put together, and said."""
    with pytest.raises(ValueError, match="two features have the same name"):
        Features([RunsFeature(), RunsFeature()])

    class Other(CountersFeature):
        name = "other"

    with pytest.raises(ValueError, match="two features bring channels called 'ticks"):
        _ = Features([RunsFeature(), CountersFeature(), Other()]).operations
