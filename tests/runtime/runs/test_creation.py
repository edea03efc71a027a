from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from perdure.actors.claim import CLAIM_EVENTS, SCHEME, ClaimMade
from perdure.actors.run.events import Activated, RunCreated
from perdure.eventlog import MemoryStore
from perdure.runtime.kernel.principal import LOCAL, Principal
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import (
    CreateRun,
    GetRun,
    ListRuns,
)
from tests.runtime.service import TWO_PLUGINS, refused, service

# Creating


async def test_a_created_run_is_queued_and_readable(autojump_clock: MockClock) -> None:
    """The answer has the record, and the cursor it is true at (R2, R21, R24, R25, R69)."""
    async with service() as s:
        request = CreateRun(
            plugin_id="test", entry_id="greet", args={}, task_id="t1", trace_id="tr1"
        )
        answer = await s.create(LOCAL, request)
        run = answer["run"]
        assert (run["status"], run["attempt"], run["parent_run_id"]) == ("queued", 1, None)
        assert run["root_run_id"] == run["run_id"]
        assert (run["task_id"], run["trace_id"]) == ("t1", "tr1")
        past = await s.get(LOCAL, GetRun(run_id=run["run_id"], at=answer["cursor"]))
        assert past == answer


@pytest.mark.parametrize(
    "request_body",
    [
        {"entry_id": "greet", "args": {}},
        {"plugin_id": "test", "args": {}},
        {"plugin_id": "test", "entry_id": "greet", "args": []},
        {"plugin_id": "test", "entry_id": "greet", "args": {}, "mode": "other"},
        {"plugin_id": "test", "entry_id": "greet", "args": {}, "unknown": 1},
        {"plugin_id": "", "entry_id": "greet", "args": {}},
        {"plugin_id": "test", "entry_id": "greet", "args": {}, "timeout": 0},
    ],
)
def test_a_request_that_makes_no_sense_is_refused_at_the_door(request_body: Any) -> None:
    """Missing, unknown and ill-typed parts never get inside (R58, R62)."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(request_body, CreateRun)


async def test_bad_arguments_make_no_run(autojump_clock: MockClock) -> None:
    """They are checked against the entry's types before a run exists (R58)."""
    async with service() as s:
        error = await refused("VALIDATION_ERROR", lambda: s.start("nap", args={"seconds": "x"}))
        assert "args.seconds" in error.message
        await refused("VALIDATION_ERROR", lambda: s.start("nap", args={}))
        assert (await s.list(LOCAL, ListRuns()))["runs"] == []


async def test_arguments_that_fit_into_no_record_make_no_run(autojump_clock: MockClock) -> None:
    """Few characters on the wire may be many bytes in the log; the answer says how many."""
    async with service() as s:
        error = await refused(
            "PAYLOAD_TOO_LARGE", lambda: s.start("greet", args={"name": "x" * 1_048_576})
        )
        assert error.details is not None
        assert error.details["size"] > error.details["limit"] == 1_048_576
        assert (await s.list(LOCAL, ListRuns()))["runs"] == []


async def test_unknown_plugins_and_entries_make_no_run(autojump_clock: MockClock) -> None:
    """The answer says which entries there are (R70)."""
    async with service() as s:
        error = await refused("ENTRY_NOT_FOUND", lambda: s.start("nowhere"))
        assert "greet" in error.message
        request = CreateRun(plugin_id="nobody", entry_id="x", args={})
        await refused("PLUGIN_NOT_FOUND", lambda: s.create(LOCAL, request))
        assert (await s.list(LOCAL, ListRuns()))["runs"] == []


# Idempotency


async def test_one_key_makes_one_run(autojump_clock: MockClock) -> None:
    """However many ask at once, and later again (R63, R68)."""
    async with service() as s:
        ids: list[str] = []

        async def ask(key: str) -> None:
            run = await s.start("greet", args={"name": key}, idempotency_key=key)
            ids.append(run["run_id"])

        async with trio.open_nursery() as nursery:
            for number in range(1000):
                nursery.start_soon(ask, f"key-{number % 10}")
        assert len(ids) == 1000
        assert len(set(ids)) == 10
        for run_id in set(ids):
            await s.finished(run_id)
            assert len(s.world.events(run_id, Activated)) == 1  # executed once
        created = [r for r in s.world.store._records if r.name == RunCreated.event_name]
        assert len(created) == 10
        assert runs_of(s.node).runs._creation._streams._queues == {}
        again = await s.start("greet", args={"name": "key-3"}, idempotency_key="key-3")
        assert again["run_id"] in ids
        assert (await s.start("greet"))["run_id"] != (await s.start("greet"))["run_id"]


async def test_a_key_stands_for_one_request(autojump_clock: MockClock) -> None:
    """Another plugin, entry or argument is a conflict that shows both hashes (R64, R65)."""
    async with service(plugins=TWO_PLUGINS) as s:
        first = await s.start("greet", args={"name": "a"}, idempotency_key="k")
        error = await refused(
            "IDEMPOTENCY_CONFLICT",
            lambda: s.start("greet", args={"name": "b"}, idempotency_key="k"),
        )
        assert error.details is not None
        assert error.details["run_id"] == first["run_id"]
        assert error.details["expected"] != error.details["actual"]
        await refused("IDEMPOTENCY_CONFLICT", lambda: s.start("fail", idempotency_key="k"))
        same = {"args": {"name": "a"}, "idempotency_key": "k"}
        await refused("IDEMPOTENCY_CONFLICT", lambda: s.start("greet", plugin_id="other", **same))
        assert len((await s.list(LOCAL, ListRuns()))["runs"]) == 1


async def test_a_key_belongs_to_its_principal(autojump_clock: MockClock) -> None:
    """Keys of different people never meet."""
    async with service() as s:
        request = CreateRun(plugin_id="test", entry_id="greet", args={}, idempotency_key="k")
        mine = await s.create(LOCAL, request)
        theirs = await s.create(Principal("local", "other"), request)
        assert mine["run"]["run_id"] != theirs["run"]["run_id"]


async def test_a_key_is_free_after_its_window_but_not_before_its_run_has_ended(
    autojump_clock: MockClock,
) -> None:
    """A long run keeps its key (R66)."""
    async with service(claim_window=10 * 10**9) as s:
        args = {"seconds": 50}
        first = await s.start("nap", args=args, idempotency_key="k")
        await trio.sleep(20)
        same = await s.start("nap", args=args, idempotency_key="k")
        assert same["run_id"] == first["run_id"]
        await s.finished(first["run_id"])
        new = await s.start("nap", args=args, idempotency_key="k")
        assert new["run_id"] != first["run_id"]


async def test_a_key_survives_a_restart(autojump_clock: MockClock) -> None:
    """The claim is in the log (R32, R67)."""
    store = MemoryStore()
    async with service(store) as s:
        first = await s.start("greet", idempotency_key="k")
    async with service(store) as s:
        again = await s.start("greet", idempotency_key="k")
        assert again["run_id"] == first["run_id"]


async def test_a_claim_tells_how_its_request_was_hashed(autojump_clock: MockClock) -> None:
    """So that the way can change, and old keys still be compared."""
    async with service() as s:
        run = await s.start("greet", idempotency_key="k")
        (record,) = [r for r in s.world.store._records if r.name == ClaimMade.event_name]
        claim: ClaimMade = CLAIM_EVENTS.decode(record)
        assert (claim.run_id, claim.scheme) == (run["run_id"], SCHEME)


async def test_only_so_many_runs_run_at_once(autojump_clock: MockClock) -> None:
    """Over all plugins; the others wait as queued."""
    async with service(runs=2) as s:
        made = [(await s.start("slow_exports", args={"n": 10}))["run_id"] for _ in range(5)]
        await trio.sleep(5)
        statuses = [(await s.read(run_id))["status"] for run_id in made]
        assert sorted(statuses) == ["queued"] * 3 + ["running"] * 2
        for run_id in made:
            assert (await s.finished(run_id))["status"] == "succeeded"
