"""Texts and JSON values that are too large for an item: kept as blobs, shown by their beginning."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.run.views import ExportItem
from perdure.eventlog import MemoryStore
from perdure.runtime.blobs.depot import MemoryDepot
from perdure.runtime.blobs.store import BlobLimits, BlobStore
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.contract import PluginError
from perdure.runtime.plugins.plugin import declared, entry, plugin
from perdure.runtime.plugins.run_context import RunContext
from perdure.runtime.runs.requests import CancelRun, ReadBlob
from perdure.runtime.secrets.secret import Secret
from tests.eventlog.conftest import SteadyEnv
from tests.runtime.execution.test_current_run import PLUGINS, Scripted, items, ran
from tests.runtime.secrets.guarded import REFERENCE, SOURCE, VALUE
from tests.runtime.service import Service, events, service

LIMIT = 64 << 10
MIME = {"text": "text/plain; charset=utf-8", "json": "application/json"}


async def read(s: Service, item: ExportItem) -> bytes:
    """Read the blob of an item."""
    request = ReadBlob(run_id=item["run_id"], sha256=item["metadata"]["sha256"])
    return (await s.call("blobs.read", request))["data"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("kind", "content", "stored"),
    [
        ("text", "x" * LIMIT, "x" * LIMIT),
        ("text", "ü" * (LIMIT // 2), "ü" * (LIMIT // 2)),
        ("json", ["y" * (LIMIT - 4)], json.dumps(["y" * (LIMIT - 4)])),
        ("json", {"a": "z" * (LIMIT - 8)}, f'{{"a":"{"z" * (LIMIT - 8)}"}}'),
    ],
    ids=["text", "in bytes", "list", "object"],
)
async def test_what_is_too_large_for_an_item_becomes_a_blob(
    autojump_clock: MockClock, kind: str, content: Any, stored: str
) -> None:
    """Up to 64 KiB are in the item; with one byte more it has an address and a preview (R52)."""
    assert len(stored.encode()) == LIMIT
    more = content + "w" if isinstance(content, str) else _longer(content)
    stored_more = (
        stored + "w" if isinstance(content, str) else json.dumps(more, separators=(",", ":"))
    )

    async def body(ctx: RunContext) -> None:
        await ctx.run.export(kind, content, "fits")
        await ctx.run.export(kind, more, "does not", metadata={"m": 1})

    Scripted.body = staticmethod(body)
    async with service(plugins=PLUGINS) as s:
        run_id = (await s.start("go"))["run_id"]
        assert (await s.finished(run_id))["status"] == "succeeded"
        fits, large = await items(s, run_id)
        assert (fits["type"], fits[kind]) == (kind, content)  # type: ignore[literal-required]
        digest = sha256(stored_more.encode()).hexdigest()
        assert large["type"] == "binary_url"
        assert large["binary_url"] == f"/runs/{run_id}/blobs/{digest}"
        assert (large["description"], large["mime"]) == ("does not", MIME[kind])
        assert large["metadata"] == {
            "m": 1,
            "type": kind,
            "preview": stored_more[:200],
            "size": LIMIT + 1,
            "sha256": digest,
        }
        assert (await read(s, large)).decode() == stored_more


def _longer(content: Any) -> Any:
    """The same with one character more."""
    if isinstance(content, list):
        return [content[0] + "w"]
    return {name: value + "w" for name, value in content.items()}


async def test_a_large_result_is_an_item_with_an_address(autojump_clock: MockClock) -> None:
    """What an entry returns may be as large as a blob; followers get its beginning (R52)."""
    value = {"rows": ["row"] * 100_000}

    async def body(_: RunContext) -> Any:
        return value

    Scripted.body = staticmethod(body)
    async with service(plugins=PLUGINS) as s:
        follower = await s.follow("export", after=await s.cursor())
        run_id = (await s.start("go"))["run_id"]
        end = await s.finished(run_id)
        assert end["status"] == "succeeded"
        (item,) = await items(s, run_id)
        assert [ref["export_item_id"] for ref in end["result_refs"]] == [item["export_item_id"]]
        assert json.loads(await read(s, item)) == value
        (event,) = await events(follower)
        assert event == item
        assert len(json.dumps(event)) < 1000


async def test_the_limit_of_texts_is_the_setting_of_all_items(autojump_clock: MockClock) -> None:
    """And a MIME type that the entry gives stays."""

    async def body(ctx: RunContext) -> None:
        await ctx.run.export_text("x" * 10)
        await ctx.run.export_text("x" * 11, mime="text/markdown")
        await ctx.run.export_url("https://example.org/" + "x" * 100)

    end = await ran(body, inline_limit=10)
    assert [item["type"] for item in end.items] == ["text", "binary_url", "url"]
    assert end.items[1]["mime"] == "text/markdown"


@pytest.mark.parametrize(
    ("content", "why"),
    [(["x" * LIMIT, float("nan")], "not finite"), (["x" * LIMIT, object()], "object")],
)
async def test_what_cannot_be_stored_is_refused_at_any_size(
    autojump_clock: MockClock, content: Any, why: str
) -> None:
    """A blob holds no more than an item could."""

    async def body(ctx: RunContext) -> None:
        with pytest.raises(PluginError, match=why):
            await ctx.run.export_json(content)

    end = await ran(body)
    assert (end.record["status"], end.items) == ("succeeded", [])


async def test_there_may_be_no_room_for_a_large_result(autojump_clock: MockClock) -> None:
    """Then the run has failed, with the reason."""

    async def body(_: RunContext) -> str:
        return "x" * 200_000

    Scripted.body = staticmethod(body)
    blobs = BlobStore(SteadyEnv(), limits=BlobLimits(scope_quota=100_000))
    async with service(plugins=PLUGINS, blobs=blobs) as s:
        end = await s.finished((await s.start("go"))["run_id"])
        assert end["error"] is not None
        assert (end["status"], end["error"]["code"]) == ("failed", "QUOTA_EXCEEDED")


async def test_a_large_result_counts_although_the_run_was_interrupted(
    autojump_clock: MockClock,
) -> None:
    """An entry that returns in spite of an interrupt has succeeded, however large its value is."""

    async def body(_: RunContext) -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(7)
        return "x" * 200_000

    Scripted.body = staticmethod(body)
    async with service(plugins=PLUGINS) as s:
        run_id = (await s.start("go"))["run_id"]
        await trio.sleep(1)
        await s.cancel(LOCAL, CancelRun(run_id=run_id))
        end = await s.finished(run_id)
        assert (end["status"], len(end["result_refs"])) == ("succeeded", 1)


@pytest.mark.parametrize("keyed", [False, True])
async def test_a_large_text_after_a_crash_is_recognised(
    autojump_clock: MockClock, keyed: bool
) -> None:
    """By its key, or by being the n-th equal one: one item, one blob."""
    store, depot, lives = MemoryStore(), MemoryDepot(), 0

    async def body(ctx: RunContext) -> str:
        text = f"life {lives}" * 50_000 if keyed else "x" * 200_000
        await ctx.run.export_text(text, key="k" if keyed else None)
        if lives < 2:
            await trio.sleep_forever()
        return "y" * 200_000

    Scripted.body = staticmethod(body)
    run_id = ""
    for lives in (1, 2):
        async with service(store, PLUGINS, blobs=BlobStore(SteadyEnv(), depot)) as s:
            run_id = run_id or (await s.start("go"))["run_id"]
            if lives == 1:
                await trio.sleep(10)
                continue
            assert (await s.finished(run_id))["status"] == "succeeded"
            assert len(await items(s, run_id)) == 2
    assert len(depot.stored(run_id)) == 2


@plugin("test", version="1")
class Talker:
    """Says its secret at length."""

    @entry
    async def talk(self, ctx: RunContext, token: Secret) -> dict[str, Any]:
        """Export it, and return it."""
        said = f"{token} " * 10_000
        await ctx.run.export_text(said)
        return {"said": [said]}


async def test_no_secret_is_in_a_large_text(autojump_clock: MockClock) -> None:
    """Neither in the blob nor in the preview."""
    plugins = {"test": declared(Talker)}
    async with service(plugins=plugins, source=SOURCE) as s:
        run_id = (await s.start("talk", args={"token": REFERENCE}))["run_id"]
        assert (await s.finished(run_id))["status"] == "succeeded"
        found = await items(s, run_id)
        assert len(found) == 2
        for item in found:
            assert VALUE not in json.dumps(item)
            assert VALUE.encode() not in await read(s, item)
