"""The trigger that callers had before there were runs, in both of its ways."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import trio
from trio.testing import MockClock

from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.plugin import declared, entry, plugin
from perdure.runtime.plugins.run_context import RunContext, SyncRunContext
from perdure.runtime.runs.settings import TriggerMode
from tests.runtime.http.client import Client, client, error_of
from tests.runtime.service import real_service
from tests.runtime.settings import settings_with
from tests.runtime.world import Example

TRIGGER = "/plugin/trigger"


@plugin("crash")
class Crash:
    """Dies in its process."""

    @entry
    def now(self, ctx: SyncRunContext) -> None:
        """Take the process down."""
        import os  # noqa: PLC0415 - it is imported there

        os._exit(3)


@plugin("outputs")
class Outputs:
    """Has results that are no return values."""

    @entry
    async def two(self, ctx: RunContext) -> None:
        """Mark two items."""
        ctx.run.result(await ctx.run.export_text("one"), await ctx.run.export_url("https://e.org"))

    @entry
    async def large(self, ctx: RunContext) -> None:
        """Mark more than fits into an answer."""
        ctx.run.result(*[await ctx.run.export_text("x" * 500_000, key=f"{n}") for n in range(4)])

    @entry
    async def value(self, ctx: RunContext) -> list[str]:
        """Return more than fits into an item."""
        return ["x" * 200_000]

    @entry
    async def texts(self, ctx: RunContext) -> None:
        """Mark two texts, one too large for an item, and bytes that are said to be JSON."""
        large = await ctx.run.export_text("y" * 200_000, "large")
        claim = {"type": "json"}
        odd = await ctx.run.export_bytes(b"\xff" * 200_000, metadata=claim, key="odd")
        ctx.run.result(large, await ctx.run.export_text("small"), odd)


PLUGINS = {each.id: each for each in map(declared, (Example, Crash, Outputs))}


def body(entry_id: str = "greet", plugin_id: str = "test", **args: Any) -> dict[str, Any]:
    """What is posted."""
    return {"plugin_id": plugin_id, "entry_id": entry_id, "args": args}


async def test_a_result_that_is_too_large_is_not_given_in_part(autojump_clock: MockClock) -> None:
    """The envelope says where it is; an answer to `sync` has the address of each item."""
    async with client(plugins=PLUGINS) as asking:
        envelope = (await asking.post(TRIGGER, body("large", "outputs"))).json()
        assert (envelope["ok"], envelope["error"]["code"]) == (False, "PAYLOAD_TOO_LARGE")
        sync = (await asking.post("/runs", {**body("large", "outputs"), "mode": "sync"})).json()
        assert (len(sync["result"]), len(sync["result_refs"])) == (4, 4)


@pytest.mark.parametrize("mode", ["runs", "direct"])
async def test_a_large_value_is_in_the_envelope_as_it_was_returned(
    mode: Literal["runs", "direct"], autojump_clock: MockClock
) -> None:
    """Callers from before there were runs know no blobs; what cannot be text or JSON is one."""
    async with client(settings_with(trigger=mode), plugins=PLUGINS) as asking:
        value = (await asking.post(TRIGGER, body("value", "outputs"))).json()
        assert (value["ok"], value["data"]) == (True, ["x" * 200_000])
        large, odd, small = (await asking.post(TRIGGER, body("texts", "outputs"))).json()["data"]
        assert (large["type"], large["text"], large["description"]) == (
            "text",
            "y" * 200_000,
            "large",
        )
        assert "binary_url" not in large
        assert (small["type"], odd["type"]) == ("text", "binary_url")


async def test_a_trigger_creates_a_run_and_gives_its_envelope(autojump_clock: MockClock) -> None:
    """R122: it creates a run, waits for its end, and answers in the legacy shape."""
    async with client() as asking:
        response = await asking.post(TRIGGER, {**body(name="me"), "task_id": "t"})
        envelope = response.json()
        assert response.status_code == 200
        assert list(envelope) == ["ok", "data", "error", "run_id"]
        assert (envelope["ok"], envelope["data"], envelope["error"]) == (True, "hello me", None)
        record = await asking.record(envelope["run_id"])
        assert (record["status"], record["task_id"]) == ("succeeded", "t")


async def test_a_trigger_that_waits_too_long_says_which_run_to_follow(
    autojump_clock: MockClock,
) -> None:
    """R123: the wait ends, the run goes on, and the caller has its id."""
    async with client(sync_wait=5) as asking:
        response = await asking.post(TRIGGER, body("nap", seconds=60))
        envelope = response.json()
        assert response.status_code == 202
        assert response.headers["location"] == f"/runs/{envelope['run_id']}"
        assert (envelope["ok"], envelope["error"]["code"]) == (False, "STILL_RUNNING")
        assert (await asking.ended(envelope["run_id"]))["status"] == "succeeded"


async def test_a_trigger_with_a_key_runs_once(autojump_clock: MockClock) -> None:
    """The same key gives the same envelope, of the same run."""
    async with client() as asking:
        keyed = {**body(), "idempotency_key": "k"}
        first, second = [(await asking.post(TRIGGER, keyed)).json() for _ in range(2)]
        assert first == second


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(body(name="you"), id="success"),
        pytest.param(body("exports"), id="no result"),
        pytest.param(body("two", "outputs"), id="items"),
        pytest.param(body("value", "outputs"), id="large value"),
        pytest.param(body("fail"), id="exception"),
        pytest.param(body("fail", code="MINE"), id="plugin error"),
        pytest.param(body("fail", code="ENVELOPE"), id="error envelope"),
        pytest.param(body(name=1), id="wrong argument"),
        pytest.param(body(nmae="x"), id="unknown argument"),
        pytest.param({"plugin_id": "test"}, id="missing field"),
        pytest.param(body("nothing"), id="unknown entry"),
        pytest.param(body("x", "nobody"), id="unknown plugin"),
        pytest.param([], id="no object"),
    ],
)
async def test_both_ways_give_the_same_envelope(asked: Any, autojump_clock: MockClock) -> None:
    """R124: what is executed without a run answers like what is executed with one."""
    runs, direct = [await envelope(mode, asked) for mode in ("runs", "direct")]
    assert runs == direct


async def test_both_ways_tell_of_a_crash() -> None:
    """R124: also when the process of the entry dies, in the real world."""
    told = []
    modes: tuple[TriggerMode, ...] = ("runs", "direct")
    for mode in modes:
        async with real_service(PLUGINS, trigger=mode) as behind:
            answer = await behind.node.operations.call(
                LOCAL, "plugins.trigger", body("now", "crash")
            )
            told.append({**answer, "run_id": None})
    assert told[0] == told[1]
    assert told[0]["error"]["code"] == "PLUGIN_CRASHED"
    assert told[0]["error"]["retriable"] is True


async def envelope(mode: Literal["runs", "direct"], asked: Any) -> tuple[int, dict[str, Any]]:
    """Status and envelope of one way; a run's id is looked up and taken out."""
    async with client(settings_with(trigger=mode), plugins=PLUGINS) as asking:
        response = await asking.post(TRIGGER, asked)
        given = response.json()
        assert list(given) == ["ok", "data", "error", "run_id"]
        runs = (await asking.get("/runs")).json()["runs"]
        was_accepted = mode == "runs" and response.status_code == 200
        assert [run["run_id"] for run in runs] == ([given["run_id"]] if was_accepted else [])
        return response.status_code, {**given, "run_id": None}


async def test_a_direct_trigger_leaves_nothing(autojump_clock: MockClock) -> None:
    """No record, no run, also if it takes too long: then it is ended."""
    settings = settings_with(trigger="direct")
    async with client(settings, sync_wait=5) as asking:
        head = await asking.behind.cursor()
        response = await asking.post(TRIGGER, body("nap", seconds=60))
        assert response.status_code == 200
        assert response.json()["error"]["code"] == "TIMEOUT"
        assert response.json()["run_id"] is None
        assert await asking.behind.cursor() == head


async def test_so_many_direct_triggers_at_once(autojump_clock: MockClock) -> None:
    """More are sent away, and may come again."""
    async with client(settings_with(trigger="direct"), sync_wait=50) as asking:
        statuses: list[int] = []

        async def post(asking: Client = asking) -> None:
            response = await asking.post(TRIGGER, body("nap", seconds=1))
            statuses.append(response.status_code)
            if response.status_code == 503:
                assert response.json()["error"]["retriable"] is True
                assert response.headers["retry-after"] == "1"

        async with trio.open_nursery() as nursery:
            for _ in range(40):
                nursery.start_soon(post)
        assert sorted(statuses) == [200] * 32 + [503] * 8


async def test_a_trigger_can_be_switched_off(autojump_clock: MockClock) -> None:
    """Then there is no such address, and the document does not know it."""
    async with client(settings_with(trigger="off")) as asking:
        assert error_of(await asking.post(TRIGGER, body()), 404)["code"] == "NOT_FOUND"
        assert TRIGGER not in (await asking.get("/openapi.json")).json()["paths"]
