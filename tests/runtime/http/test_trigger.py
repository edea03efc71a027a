"""The trigger that callers had before there were runs, in both of its ways."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.claim import CLAIM_EVENTS, KEYED_SCHEME, ClaimMade
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


async def test_each_caller_chooses_its_way_if_it_may(autojump_clock: MockClock) -> None:
    """R124, per caller: during a migration some create runs while others go on as before."""
    async with client(settings_with(trigger_choice=True), plugins=PLUGINS) as asking:
        default = (await asking.post(TRIGGER, body(name="me"))).json()
        direct = (await asking.post(TRIGGER, {**body(name="me"), "via": "direct"})).json()
        asked = (await asking.post(TRIGGER, {**body(name="me"), "via": "runs"})).json()
        listed = [run["run_id"] for run in (await asking.get("/runs")).json()["runs"]]
        assert listed == [asked["run_id"], default["run_id"]]
        assert direct == {**default, "run_id": None}
        assert (await asking.get("/capabilities")).json()["trigger_choice"] is True


@pytest.mark.parametrize(("mode", "other"), [("runs", "direct"), ("direct", "runs")])
async def test_a_caller_that_may_not_choose_is_told_so(
    mode: Literal["runs", "direct"], other: str, autojump_clock: MockClock
) -> None:
    """The way of the setting can be named, the other one only where callers may choose."""
    async with client(settings_with(trigger=mode), plugins=PLUGINS) as asking:
        assert (await asking.post(TRIGGER, {**body(), "via": mode})).json()["ok"]
        refused = await asking.post(TRIGGER, {**body(), "via": other})
        assert refused.status_code == 422
        assert refused.json()["error"]["code"] == "VALIDATION_ERROR"
        assert "trigger_choice" in refused.json()["error"]["message"]


@pytest.mark.parametrize("unknown", [body("x", "nobody"), body("nothing")], ids=["plugin", "entry"])
async def test_an_unknown_entry_can_be_a_run_that_failed(
    unknown: dict[str, Any], autojump_clock: MockClock
) -> None:
    """If that is set: it passes through running, and retrying makes sense once it is loaded."""
    settings = settings_with(unknown_entries="fail", trigger_choice=True)
    async with client(settings, plugins=PLUGINS) as asking:
        envelope = (await asking.post(TRIGGER, unknown)).json()
        assert (envelope["ok"], envelope["error"]["code"]) == (False, "NOT_READY")
        created = await asking.post("/runs", unknown)
        assert (created.status_code, created.json()["status"]) == (202, "queued")
        await asking.ended(created.json()["run_id"])
        direct = await asking.post(TRIGGER, {**unknown, "via": "direct"})
        assert direct.json() == {**envelope, "run_id": None}
        for run_id in (envelope["run_id"], created.json()["run_id"]):
            record = await asking.record(run_id)
            assert (record["status"], record["error"]["retriable"]) == ("failed", True)
            assert record["started_at"] is not None


async def test_no_argument_of_an_unknown_entry_is_kept(autojump_clock: MockClock) -> None:
    """Which of them are secret is not known: neither values nor plain hashes enter the log."""
    settings, keyed = settings_with(unknown_entries="fail"), {"idempotency_key": "k"}
    async with client(settings, plugins=PLUGINS) as asking:
        asked = {**body("x", "nobody", word="correct-horse", n=1), **keyed}
        first, second = [await asking.post("/runs", asked) for _ in range(2)]
        assert first.json()["run_id"] == second.json()["run_id"]
        other = await asking.post("/runs", {**body("x", "nobody", word="wrong", n=1), **keyed})
        assert error_of(other, 409)["code"] == "IDEMPOTENCY_CONFLICT"
        records = asking.behind.world.store._records
        assert all(b"correct-horse" not in record.body for record in records)
        (claim,) = [r for r in records if r.name == ClaimMade.event_name]
        assert CLAIM_EVENTS.decode(claim).scheme == KEYED_SCHEME
