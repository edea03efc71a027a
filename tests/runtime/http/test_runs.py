"""The Run protocol over HTTP: the behaviours of its section 7, asked of the whole application."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.run.views import RunRecord
from perdure.eventlog import MemoryStore
from perdure.runtime.kernel.decoding import LARGE
from perdure.runtime.plugins.plugin import declared, entry, plugin
from perdure.runtime.plugins.run_context import RunContext
from tests.runtime.http.client import JSON, Client, client, error_of
from tests.runtime.service import TWO_PLUGINS

TERMINAL = {"succeeded", "failed", "canceled", "timeout"}


async def test_a_run_is_created_and_can_be_read_at_once(autojump_clock: MockClock) -> None:
    """R57: a POST answers with run_id and status, and says where the run is.

    R59: without a mode it answers before the entry has finished.
    """
    async with client() as asking:
        response = await asking.create("nap", args={"seconds": 50})
        body = response.json()
        assert response.status_code == 202
        assert body["status"] == "queued"
        assert response.headers["location"] == f"/runs/{body['run_id']}"
        assert trio.current_time() < 10
        found = await asking.get(response.headers["location"])
        assert found.json()["status"] in {"queued", "running"}
        assert (await asking.ended(body["run_id"]))["status"] == "succeeded"


async def test_a_run_waits_begins_and_says_when(autojump_clock: MockClock) -> None:
    """R2: it is queued and can be read before its entry starts.

    R3: when it does, it is running, started_at is set and updated_at has advanced.
    """
    async with client(runs=1) as asking:
        await asking.started("slow_exports", args={"n": 5})
        run_id = await asking.started("slow_exports", args={"n": 5})
        await trio.sleep(1)
        queued = await asking.record(run_id)
        assert (queued["status"], queued["started_at"]) == ("queued", None)
        assert queued["updated_at"] >= queued["created_at"]
        await trio.sleep(7)
        running = await asking.record(run_id)
        assert running["status"] == "running"
        assert running["updated_at"] >= running["started_at"] > queued["updated_at"] + 1
        ended = await asking.ended(run_id)
        assert ended["updated_at"] >= ended["finished_at"] > running["updated_at"] + 1


async def test_the_record_has_all_of_its_fields(autojump_clock: MockClock) -> None:
    """R71: GET /runs/{id} is the authoritative record, with all fields and its cursor."""
    async with client() as asking:
        run_id = await asking.started("greet", task_id="t", trace_id="c", idempotency_key="k")
        record = await asking.ended(run_id)
        assert set(record) == {*RunRecord.__annotations__, "cursor"}
        behind = await asking.behind.read(run_id)
        assert {**behind, "cursor": record["cursor"]} == record
        sent = {"task_id": "t", "trace_id": "c", "idempotency_key": "k"}
        assert record == {**record, **sent, "status": "succeeded", "attempt": 1}


async def test_who_heard_nothing_reads_what_is_so(autojump_clock: MockClock) -> None:
    """R35: an observer who saw no notification recovers the right state by reading it.

    R69: what a caller sent to find its runs again is in the record.
    """
    async with client() as asking:
        run_id = await asking.started("stages", task_id="mine")
        seen: list[tuple[str, float | None]] = []
        while not seen or seen[-1][0] not in TERMINAL:
            record = await asking.record(run_id)
            assert record["task_id"] == "mine"
            if not seen or seen[-1] != (record["status"], record["progress"]):
                seen.append((record["status"], record["progress"]))
            await trio.sleep(0.5)
        assert seen[-2:] == [("running", 0.4), ("succeeded", 0.4)]


async def test_a_caller_can_wait_for_the_end(autojump_clock: MockClock) -> None:
    """R60: mode sync answers with the terminal record and the result; an overrun with 202."""
    async with client(sync_wait=30) as asking:
        response = await asking.create("nap", args={"seconds": 1}, mode="sync")
        body = response.json()
        assert response.status_code == 200
        assert body["status"] == "succeeded"
        assert [item["json"] for item in body["result"]] == ["rested"]
        item = {"export_item_id": body["result"][0]["export_item_id"], "type": "json"}
        assert body["result_refs"] == [item]
        failed = await asking.create("fail", mode="sync")
        assert (failed.status_code, failed.json()["status"]) == (200, "failed")
        assert failed.json()["result"] == []

        begun = trio.current_time()
        late = await asking.create("nap", args={"seconds": 60}, mode="sync")
        assert 30 <= trio.current_time() - begun < 31
        assert late.status_code == 202
        assert late.json()["status"] == "running"
        assert "result" not in late.json()
        assert late.headers["location"] == f"/runs/{late.json()['run_id']}"


async def test_a_caller_who_hangs_up_ends_nothing(autojump_clock: MockClock) -> None:
    """R61: when the client of a sync request is gone, the run goes on and can be read."""
    async with client() as asking:
        with trio.move_on_after(5) as hanging_up:
            await asking.create("nap", args={"seconds": 20}, mode="sync", task_id="left")
        assert hanging_up.cancelled_caught
        (run,) = (await asking.get("/runs", params={"task_id": "left"})).json()["runs"]
        assert run["status"] == "running"
        assert (await asking.ended(run["run_id"]))["status"] == "succeeded"


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ({"entry_id": "greet", "args": {}}, ["plugin_id"]),
        ({"plugin_id": "test", "args": {}}, ["entry_id"]),
        ({}, ["plugin_id", "entry_id"]),
        ({"plugin_id": "test", "entry_id": "greet", "args": []}, ["args"]),
        ({"plugin_id": "test", "entry_id": "greet", "args": None}, ["args"]),
        ({"plugin_id": "test", "entry_id": "greet", "args": {}, "mode": "later"}, ["mode"]),
        ({"plugin_id": "test", "entry_id": "greet", "args": {"nmae": "x"}}, ["args.nmae"]),
        (
            {"plugin_id": "test", "entry_id": "greet", "args": {"nmae": "x", "name": 1}},
            ["args.nmae", "args.name"],
        ),
        ({"plugin_id": "test", "entry_id": "nap"}, ["args.seconds"]),
        ({"plugin_id": "test", "entry_id": "greet", "args": {}, "unknown": 1}, ["unknown"]),
        ({"plugin_id": 1, "entry_id": "greet", "args": {}}, ["plugin_id"]),
        ([], [""]),
        ("text", [""]),
    ],
)
async def test_what_makes_no_sense_creates_nothing(
    body: Any, paths: list[str], autojump_clock: MockClock
) -> None:
    """R58 R62: VALIDATION_ERROR that names each field, and no run."""
    async with client() as asking:
        error = error_of(await asking.post("/runs", body), 422)
        assert error["code"] == "VALIDATION_ERROR"
        assert [each["path"] for each in error["details"]["errors"]] == paths
        assert all(path in error["message"] for path in paths)
        assert (await asking.get("/runs")).json()["runs"] == []


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        ("/runs?limit=none", {"path": "limit", "expected": "int", "got": "str"}),
        (
            "/runs?colour=red&limit=1",
            {"path": "colour", "expected": "one of the names", "got": None},
        ),
        ("/runs?created_from=soon", {"path": "created_from", "expected": "an instant"}),
    ],
)
async def test_what_makes_no_sense_in_an_address_is_named(
    path: str, wrong: dict[str, Any], autojump_clock: MockClock
) -> None:
    """VALIDATION_ERROR has the same details there as for a body."""
    async with client() as asking:
        (found,) = error_of(await asking.get(path), 422)["details"]["errors"]
        assert found["expected"].startswith(wrong.pop("expected"))
        assert found == {**found, **wrong}


async def test_arguments_may_be_left_out(autojump_clock: MockClock) -> None:
    """An entry that needs none is started without any."""
    async with client() as asking:
        response = await asking.post("/runs", {"plugin_id": "test", "entry_id": "greet"})
        assert response.status_code == 202
        ended = await asking.ended(response.json()["run_id"])
        assert ended["status"] == "succeeded"
        document = (await asking.get("/openapi.json")).json()
        required = document["components"]["schemas"]["CreateRun"]["required"]
        assert sorted(required) == ["entry_id", "plugin_id"]


async def test_unknown_names_are_not_found(autojump_clock: MockClock) -> None:
    """R70 R72 R80: unknown plugins, entries and runs are 404, each with its code."""
    async with client() as asking:
        nobody = {"plugin_id": "nobody", "entry_id": "x", "args": {}}
        assert error_of(await asking.post("/runs", nobody), 404)["code"] == "PLUGIN_NOT_FOUND"
        assert error_of(await asking.create("nothing"), 404)["code"] == "ENTRY_NOT_FOUND"
        for path in ("", "/export", "/logs"):
            error = error_of(await asking.get(f"/runs/nowhere{path}"), 404)
            assert error["code"] == "RUN_NOT_FOUND"
            assert "list the runs" in error["message"]
        for path in ("/cancel", "/retry"):
            assert error_of(await asking.post(f"/runs/nowhere{path}"), 404)["code"] == (
                "RUN_NOT_FOUND"
            )
        assert (await asking.get("/runs")).json()["runs"] == []


async def test_a_key_stands_for_one_run(autojump_clock: MockClock) -> None:
    """R63 R68: fifty at once with one key are one run; two without a key are two."""
    async with client() as asking:
        found: set[str] = set()

        async def post() -> None:
            found.add((await asking.create("greet", idempotency_key="k")).json()["run_id"])

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(post)
        (run_id,) = found
        await asking.ended(run_id)
        again = await asking.create("greet", idempotency_key="k")
        assert (again.status_code, again.json()["run_id"]) == (200, run_id)
        assert again.headers["location"] == f"/runs/{run_id}"
        without = {await asking.started("greet"), await asking.started("greet")}
        assert len(without | found) == 3


async def test_a_key_stands_for_one_request(autojump_clock: MockClock) -> None:
    """R64 R65: another plugin, entry or argument under one key is a conflict, with hashes."""
    async with client(plugins=TWO_PLUGINS) as asking:
        await asking.started("greet", idempotency_key="k")
        for other in ({"entry_id": "fail"}, {"args": {"name": "me"}}, {"plugin_id": "other"}):
            body = {"plugin_id": "test", "entry_id": "greet", "args": {}, **other}
            error = error_of(await asking.post("/runs", {**body, "idempotency_key": "k"}), 409)
            assert error["code"] == "IDEMPOTENCY_CONFLICT"
            assert error["details"]["expected"] != error["details"]["actual"]
        assert len((await asking.get("/runs")).json()["runs"]) == 1


async def test_a_key_outlives_the_process_and_not_its_window(autojump_clock: MockClock) -> None:
    """R66 R67: after a restart the same run; after the window a new one."""
    store = MemoryStore()
    async with client(store=store) as asking:
        run_id = await asking.started("greet", idempotency_key="k")
        await asking.ended(run_id)
    async with client(store=store) as asking:
        again = await asking.create("greet", idempotency_key="k")
        assert again.json()["run_id"] == run_id
        await trio.sleep(25 * 3600)
        assert await asking.started("greet", idempotency_key="k") != run_id


async def test_runs_are_listed_newest_first_by_all_that_is_asked(
    autojump_clock: MockClock,
) -> None:
    """R82: filters are combined; statuses repeated or by comma; pages join without a hole."""
    async with client(plugins=TWO_PLUGINS) as asking:
        made = []
        for number in range(5):
            entry = "fail" if number % 2 else "greet"
            plugin = "other" if number == 4 else "test"
            made.append(await asking.started(entry, task_id=f"t{number % 2}", plugin_id=plugin))
            await asking.ended(made[-1])
            await trio.sleep(10)
        assert await listed(asking) == made[::-1]
        assert await listed(asking, task_id="t1") == [made[3], made[1]]
        assert await listed(asking, status="failed") == [made[3], made[1]]
        assert await listed(asking, status=["failed", "succeeded"]) == made[::-1]
        assert await listed(asking, status="failed,succeeded") == made[::-1]
        assert await listed(asking, entry_id="greet", status="failed") == []
        assert await listed(asking, plugin_id="other") == [made[4]]
        assert await listed(asking, plugin_id="test") == made[3::-1]
        assert await listed(asking, plugin_id="test", task_id="t0") == [made[2], made[0]]
        assert await listed(asking, plugin_id="other", status="failed") == []
        assert await listed(asking, plugin_id="test", root_run_id=made[2]) == [made[2]]
        created = [(await asking.record(run_id))["created_at"] for run_id in made]
        assert await listed(asking, created_from=created[3]) == [made[4], made[3]]
        assert await listed(asking, created_from=created[1], created_until=created[3]) == [
            made[2],
            made[1],
        ]

        pages: list[list[str]] = []
        after = None
        while after is not None or not pages:
            page = (await asking.get("/runs", params=query(limit=2, after=after))).json()
            assert set(page) == {"runs", "next_after", "cursor"}
            pages.append([run["run_id"] for run in page["runs"]])
            after = page["next_after"]
        assert pages == [[made[4], made[3]], [made[2], made[1]], [made[0]]]


async def listed(asking: Client, **where: Any) -> list[str]:
    """The ids of the runs that are listed."""
    response = await asking.get("/runs", params=where)
    assert response.status_code == 200, response.text
    return [run["run_id"] for run in response.json()["runs"]]


def query(**given: Any) -> dict[str, Any]:
    """What is given, without what is not."""
    return {name: value for name, value in given.items() if value is not None}


async def test_the_past_is_read_at_a_cursor_and_at_an_instant(autojump_clock: MockClock) -> None:
    """A run and a list as they were: a cursor, epoch seconds or nanoseconds, or ISO 8601."""
    async with client() as asking:
        created = (await asking.create("nap", args={"seconds": 5})).json()
        run_id = created["run_id"]
        await trio.sleep(1)
        running = await asking.record(run_id)
        ended = await asking.ended(run_id)
        moments = {
            created["cursor"]: "queued",
            str(running["updated_at"]): "running",
            str(int(running["updated_at"] * 1_000_000) * 1000 + 999): "running",
            "2030-01-01T00:00:00Z": "succeeded",
            quote("2030-01-01T00:00:00+01:00"): "succeeded",
            "2030-01-01T00:00:00+01:00": "succeeded",  # the plus sign arrives as a space
            "2030-01-01": "succeeded",
        }
        for moment, status in moments.items():
            response = await asking.get(f"/runs/{run_id}?at={moment}")
            assert response.json()["status"] == status, moment
        at = await asking.get("/runs", params={"at": running["cursor"]})
        assert [run["status"] for run in at.json()["runs"]] == ["running"]
        assert (await asking.record(run_id, at=ended["cursor"])) == ended
        before = await asking.get(f"/runs/{run_id}?at=0")
        assert error_of(before, 404)["code"] == "RUN_NOT_FOUND"


async def test_plugins_are_listed_with_their_schemas(autojump_clock: MockClock) -> None:
    """What can be run, and what it takes."""
    async with client() as asking:
        page = (await asking.get("/plugins")).json()
        (plugin,) = page["plugins"]
        greet = next(entry for entry in plugin["entries"] if entry["entry_id"] == "greet")
        assert greet["args"]["properties"]["name"]["type"] == "string"
        assert page["cursor"]


@plugin("any")
class Anything:
    """A plugin that takes values of every kind."""

    @entry
    async def take(self, ctx: RunContext, value: object, more: object | None = None) -> str:
        """Say what kind of value it is."""
        return f"{type(value).__name__} {more}"


async def test_an_argument_may_be_any_value(autojump_clock: MockClock) -> None:
    """One of Python's type object takes whatever JSON has, and its plugin is listed."""
    async with client(plugins={"any": declared(Anything)}) as asking:
        (listed,) = (await asking.get("/plugins")).json()["plugins"]
        assert listed["entries"][0]["args"]["properties"]["value"] == {"description": "any value"}
        for value in (1, "text", [1], {"a": None}):
            body = {"plugin_id": "any", "entry_id": "take", "args": {"value": value}}
            run_id = (await asking.post("/runs", body)).json()["run_id"]
            assert (await asking.ended(run_id))["status"] == "succeeded"


async def test_times_are_epoch_seconds(autojump_clock: MockClock) -> None:
    """Floats as the protocol has them, also on the wire."""
    async with client() as asking:
        response = await asking.create("greet")
        assert re.search(r'"created_at":\d{10}\.\d', response.text)
        assert isinstance(response.json()["updated_at"], float)
        assert dict(JSON) == {"content-type": response.headers["content-type"]}


async def test_a_large_body_is_decoded_beside_the_event_loop(
    autojump_clock: MockClock, decoded_apart: list[object]
) -> None:
    """Others are served meanwhile."""
    async with client() as asking:
        await asking.started("greet", args={"name": "x"})
        assert len(decoded_apart) == 0
        await asking.started("greet", args={"name": "x" * LARGE})
        assert len(decoded_apart) == 1


async def test_a_body_has_so_many_values(autojump_clock: MockClock) -> None:
    """A MiB of the smallest ones is refused in words."""
    async with client() as asking:
        body = b'{"plugin_id":"test","entry_id":"greet","args":{"x":[%b]}}'
        for count, status in ((19_990, 422), (340_000, 422)):
            content = body % b",".join([b"[]"] * count)
            error = error_of(await asking.post("/runs", content=content, headers=JSON), status)
            assert error["code"] == "VALIDATION_ERROR"
            assert ("20,000 values" in error["message"]) == (count > 20_000)
