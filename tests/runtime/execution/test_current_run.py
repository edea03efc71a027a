"""What an entry can do through ``ctx.run``, seen from outside."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.run.events import (
    LogBatch,
)
from perdure.actors.run.views import ExportItem, RunRecord
from perdure.eventlog import MemoryStore
from perdure.runtime.kernel.principal import LOCAL, Principal
from perdure.runtime.plugins.contract import RunCancelled
from perdure.runtime.plugins.plugin import declared, entry, plugin
from perdure.runtime.plugins.run_context import RunContext
from perdure.runtime.runs.requests import CancelRun, CreateRun, ExportRun
from perdure.runtime.secrets.secret import Secret
from tests.runtime.service import Service, service

Body = Callable[[RunContext], Awaitable[Any]]


@plugin("test", version="1")
class Scripted:
    """Runs whatever the test has put here."""

    body: Body

    @entry
    async def go(self, ctx: RunContext) -> Any:
        """Do what the test says."""
        return await type(self).body(ctx)

    @entry
    async def take(self, ctx: RunContext, data: str = "", token: Secret | None = None) -> None:
        """Take something, and do nothing."""


PLUGINS = {"test": declared(Scripted)}


async def ran(body: Body, store: MemoryStore | None = None, **limits: Any) -> Ran:
    """Run a body to its end."""
    Scripted.body = staticmethod(body)
    async with service(store, PLUGINS, **limits) as s:
        run_id = (await s.start("go"))["run_id"]
        record = await s.finished(run_id)
        return Ran(s, record, await items(s, run_id))


class Ran:
    """What became of a body."""

    def __init__(self, s: Service, record: RunRecord, items: list[ExportItem]) -> None:
        """Keep what can be asked of a run that has ended."""
        self.record = record
        self.items = items
        self.world = s.world

    def events(self, kind: type) -> list[Any]:
        """The events of a kind."""
        return self.world.events(self.record["run_id"], kind)

    @property
    def error(self) -> tuple[str, str]:
        """Code and message of its error."""
        error = self.record["error"]
        assert error is not None
        return error["code"], error["message"]


async def items(s: Service, run_id: str) -> list[ExportItem]:
    """All that a run has put out."""
    items: list[ExportItem] = []
    after = None
    while True:
        page = await s.export(LOCAL, ExportRun(run_id=run_id, limit=500, after=after))
        items += page["items"]
        after = page["next_after"]
        if after is None:
            return items


# Who it is


async def test_an_entry_knows_its_run_wherever_it_works(autojump_clock: MockClock) -> None:
    """In its tasks and threads too; the attempt token is the same in every activation (R96)."""
    seen: list[str] = []

    async def body(ctx: RunContext) -> None:
        async def task() -> None:
            seen.append(ctx.run.id)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(task)
        await trio.to_thread.run_sync(lambda: seen.append(ctx.run.id))
        seen.append(ctx.run.attempt_token)
        assert (ctx.run.attempt, ctx.run.root_id, ctx.run.deadline) == (1, ctx.run.id, None)

    end = (await ran(body)).record
    assert end["status"] == "succeeded"
    assert seen == [end["run_id"]] * 3


# Reports


async def test_nothing_reported_is_nothing(autojump_clock: MockClock) -> None:
    """No progress stays null, also in the end; no exports, no result (R104, R105)."""

    async def body(ctx: RunContext) -> None:
        pass

    end = (await ran(body)).record
    assert (end["status"], end["progress"], end["result_refs"]) == ("succeeded", None, [])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), True, -0.1, 1.1, "0.5"])
async def test_a_bad_progress_raises_at_the_call(autojump_clock: MockClock, bad: Any) -> None:
    """The record is unchanged, and an entry that lets it pass fails with the code (R17)."""

    async def body(ctx: RunContext) -> None:
        ctx.run.progress(0.5)
        ctx.run.progress(bad)

    end = (await ran(body)).record
    assert end["progress"] == 0.5
    assert end["status"] == "failed"
    assert end["error"] is not None
    assert end["error"]["code"] == "VALIDATION_ERROR"


async def test_surplus_log_lines_are_counted_and_results_never_lost(
    autojump_clock: MockClock,
) -> None:
    """Whatever an entry shouts, its exports are all there (R118)."""

    async def body(ctx: RunContext) -> None:
        for number in range(1000):
            ctx.run.log(f"line {number}", level="debug")
            if number % 10 == 0:
                await ctx.run.export_text(f"item {number}")

    end = await ran(body)
    batches = end.events(LogBatch)
    kept = sum(len(batch.lines) for batch in batches)
    assert kept < 1000
    assert kept + sum(batch.dropped for batch in batches) == 1000
    assert [item["text"] for item in end.items] == [f"item {n}" for n in range(0, 1000, 10)]


async def reporting(ctx: RunContext) -> None:
    """Report progress for ten seconds."""
    for number in range(100):
        ctx.run.progress(number / 100, f"at {number}" if number % 2 else None)
        await trio.sleep(0.1)


async def test_progress_is_exported_only_if_that_is_wanted(autojump_clock: MockClock) -> None:
    """Off by default; else at most one item in half a second (R114)."""
    assert (await ran(reporting)).items == []
    shown = (await ran(reporting, progress_items=True)).items
    assert 15 <= len(shown) <= 21
    times = [item["created_at"] for item in shown]
    assert min(late - early for early, late in pairwise(times)) >= 0.5
    assert {"at 5", "10%"} & {item["text"] for item in shown}
    assert all(0 <= item["metadata"]["progress"] < 1 for item in shown)


# Exports


async def test_an_item_has_what_it_was_given(autojump_clock: MockClock) -> None:
    """One item each, in order, with description, mime and metadata (R47, R50, R55, R98)."""

    async def body(ctx: RunContext) -> None:
        await ctx.run.export_text("t", "a text", mime="text/plain", metadata={"a": [1]})
        await ctx.run.export_url("https://example.org", "a url")
        await ctx.run.export_binary_url("blob:1", "bytes elsewhere")
        await ctx.run.export_binary(b"\0\1", "bytes here")
        await ctx.run.export_binary(b64encode(b"more").decode())
        await ctx.run.export_json({"x": None}, "a value")

    end = await ran(body)
    assert [(item["type"], item["description"]) for item in end.items] == [
        ("text", "a text"),
        ("url", "a url"),
        ("binary_url", "bytes elsewhere"),
        ("binary", "bytes here"),
        ("binary", None),
        ("json", "a value"),
    ]
    assert (end.items[0]["mime"], end.items[0]["metadata"]) == ("text/plain", {"a": [1]})
    assert [item.get("binary") for item in end.items[3:5]] == ["AAE=", "bW9yZQ=="]
    assert end.items[5]["json"] == {"x": None}
    assert len({item["export_item_id"] for item in end.items}) == 6


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ("no base64!", "VALIDATION_ERROR"),
        ("YQ", "VALIDATION_ERROR"),
        (b"x" * 65537, "PAYLOAD_TOO_LARGE"),
        (b64encode(b"x" * 65537).decode(), "PAYLOAD_TOO_LARGE"),
    ],
)
async def test_bytes_that_cannot_be_exported_raise_at_the_call(
    autojump_clock: MockClock, data: Any, code: str
) -> None:
    """No item is made of rubbish (R53, R115)."""

    async def body(ctx: RunContext) -> None:
        await ctx.run.export_binary(b"x" * 65536)
        await ctx.run.export_binary(data)

    end = await ran(body)
    assert end.error[0] == code
    assert len(end.items) == 1


async def test_an_item_can_refer_to_another(autojump_clock: MockClock) -> None:
    """Of this or another run of the same owner; nothing is copied (R101)."""
    refs: list[str] = []

    async def body(ctx: RunContext) -> None:
        if not refs:
            refs.append(await ctx.run.export_text("the original"))
            return
        own = await ctx.run.export_text("own")
        await ctx.run.export_id(own)
        await ctx.run.export_id(refs[0], "see there", metadata={"a": 1})

    store = MemoryStore()
    await ran(body, store)
    end = await ran(body, store)
    assert end.record["error"] is None
    _, own, other = end.items
    assert (own["type"], own["url"]) == ("url", f"perdure:export/{end.record['run_id']}.1")
    assert other["url"] == f"perdure:export/{refs[0]}"
    assert other["metadata"] == {"a": 1, "ref": refs[0]}
    assert other["description"] == "see there"


@pytest.mark.parametrize("ref", ["rubbish", "", "nobody.1", "{own}.2", "{own}.0", "{theirs}.1"])
async def test_a_foreign_reference_is_refused(autojump_clock: MockClock, ref: str) -> None:
    """What does not exist, and what belongs to somebody else (R101)."""

    async def body(ctx: RunContext) -> str | None:
        if ctx.run.id == theirs:
            await ctx.run.export_text("theirs")
            return None
        await ctx.run.export_text("own")
        return await ctx.run.export_id(ref.format(own=ctx.run.id, theirs=theirs))

    Scripted.body = staticmethod(body)
    async with service(None, PLUGINS) as s:
        request = CreateRun(plugin_id="test", entry_id="go", args={})
        theirs = ""
        created = await s.create(Principal("local", "somebody"), request)
        theirs = created["run"]["run_id"]
        await s.finished(theirs)
        end = await s.finished((await s.start("go"))["run_id"])
        assert end["error"] is not None
        assert end["error"]["code"] == "VALIDATION_ERROR"
        assert len(await items(s, end["run_id"])) == 1


async def test_a_full_outbox_makes_exports_wait(autojump_clock: MockClock) -> None:
    """Memory is bounded by waiting, not by losing."""
    most = 0

    async def body(ctx: RunContext) -> None:
        nonlocal most
        port: Any = ctx.run._port
        for number in range(500):
            await ctx.run.export_text(f"{number}" * 100)
            most = max(most, len(port._execution.outbox._items))

    end = await ran(body)
    assert len(end.items) == 500
    assert most <= 64


# Cancelling


async def test_a_cancel_request_is_seen_within_a_quarter_of_a_second(
    autojump_clock: MockClock,
) -> None:
    """By an entry that looks, as a flag and as an exception (R99, R102)."""
    seen: list[float] = []

    async def body(ctx: RunContext) -> None:
        while not ctx.run.cancelled:  # noqa: ASYNC110 - as a busy entry does
            await trio.sleep(0.01)
        seen.append(trio.current_time())
        with pytest.raises(RunCancelled):
            ctx.run.check_cancelled()
        await ctx.run.export_text("cleaning up")
        ctx.run.check_cancelled()

    Scripted.body = staticmethod(body)
    async with service(None, PLUGINS) as s:
        run_id = (await s.start("go"))["run_id"]
        await trio.sleep(3)
        asked = trio.current_time()
        await s.cancel(LOCAL, CancelRun(run_id=run_id))
        end = await s.finished(run_id)
        assert end["status"] == "canceled"
        assert seen[0] - asked <= 0.25
        assert [item["text"] for item in await items(s, run_id)] == ["cleaning up"]


@pytest.mark.parametrize("final", [True, False])
async def test_what_a_canceled_run_put_out_stays(autojump_clock: MockClock, final: bool) -> None:
    """Its items are replayed; they are its result only if it said so (R13, R14, R15, R26, R30)."""

    async def body(ctx: RunContext) -> None:
        item = await ctx.run.export_text("half of it")
        if final:
            ctx.run.result(item)
        await trio.sleep(1000)

    Scripted.body = staticmethod(body)
    async with service(None, PLUGINS) as s:
        run_id = (await s.start("go"))["run_id"]
        await trio.sleep(1)
        assert (await s.read(run_id))["result_refs"] == []
        await s.cancel(LOCAL, CancelRun(run_id=run_id, force=True))
        end = await s.finished(run_id)
        assert end["status"] == "canceled"
        assert [item["text"] for item in await items(s, run_id)] == ["half of it"]
        wanted = [{"export_item_id": f"{run_id}.1", "type": "text"}] if final else []
        assert end["result_refs"] == wanted
