"""What an entry exports as bytes: in the item, or as a blob that the item names."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.run.events import ExportAppended
from perdure.eventlog import MemoryStore
from perdure.runtime.blobs.blob import Blob, blob_at
from perdure.runtime.blobs.depot import MemoryDepot
from perdure.runtime.blobs.store import BlobLimits, BlobStore
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.contract import PluginError
from perdure.runtime.plugins.run_context import RunContext
from perdure.runtime.runs.requests import ReadBlob
from perdure.testing import run_entry
from tests.eventlog.conftest import SteadyEnv
from tests.runtime.execution.test_current_run import PLUGINS, Scripted, items, ran
from tests.runtime.service import service

LIMIT = 64 << 10


async def in_pieces(data: bytes) -> AsyncIterator[bytes]:
    """Give bytes piece by piece."""
    for start in range(0, len(data), 10_000):
        await trio.lowlevel.checkpoint()
        yield data[start : start + 10_000]


def at_once(data: bytes) -> Iterator[bytes]:
    """Give bytes piece by piece, without waiting."""
    for start in range(0, len(data), 10_000):
        yield data[start : start + 10_000]


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview, in_pieces, at_once])
@pytest.mark.parametrize("size", [0, 1, LIMIT, LIMIT + 1, 1 << 20])
async def test_large_bytes_become_a_blob_and_small_ones_stay_in_the_item(
    autojump_clock: MockClock, form: Any, size: int
) -> None:
    """Up to 65,536 bytes are inline; one more has an address, size and hash (R52, R115, R116)."""
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)

    async def body(ctx: RunContext) -> None:
        await ctx.run.export_bytes(form(data), "a file", mime="x/y", metadata={"m": 1})

    Scripted.body = staticmethod(body)
    async with service(plugins=PLUGINS) as s:
        run_id = (await s.start("go"))["run_id"]
        assert (await s.finished(run_id))["status"] == "succeeded"
        (item,) = await items(s, run_id)
        assert (item["description"], item["mime"], item["metadata"]["m"]) == ("a file", "x/y", 1)
        if size <= LIMIT:
            assert item["type"] == "binary"
            assert b64decode(item["binary"]) == data
            return
        digest = sha256(data).hexdigest()
        assert item["type"] == "binary_url"
        assert item["binary_url"] == f"/runs/{run_id}/blobs/{digest}"
        assert item["metadata"] == {"m": 1, "size": size, "sha256": digest}
        request = ReadBlob(run_id=run_id, sha256=digest)
        assert (await s.call("blobs.read", request))["data"] == data


async def test_the_limit_can_be_set(autojump_clock: MockClock) -> None:
    """For bytes of any size and for a few bytes alike; the decoded size counts (R115)."""

    async def body(ctx: RunContext) -> None:
        await ctx.run.export_bytes(bytes(10))
        await ctx.run.export_bytes(bytes(11))
        await ctx.run.export_binary(bytes(10))
        await ctx.run.export_binary(bytes(11))

    end = await ran(body, inline_limit=10)
    assert [item["type"] for item in end.items] == ["binary", "binary_url", "binary"]
    assert end.error[0] == "PAYLOAD_TOO_LARGE"


@pytest.mark.parametrize("data", ["text", ["text"], None, 7])
async def test_what_is_no_bytes_raises_at_the_call(autojump_clock: MockClock, data: Any) -> None:
    """Nothing is exported, and the entry fails with a code."""

    async def body(ctx: RunContext) -> None:
        await ctx.run.export_bytes(data)

    end = await ran(body)
    assert (end.error[0], end.items) == ("VALIDATION_ERROR", [])


async def test_an_entry_hears_that_there_is_no_room(autojump_clock: MockClock) -> None:
    """As an error that it can catch; what it does after that works."""

    async def body(ctx: RunContext) -> str:
        with pytest.raises(PluginError) as refusal:
            await ctx.run.export_bytes(bytes(200_000))
        return refusal.value.code

    Scripted.body = staticmethod(body)
    blobs = BlobStore(SteadyEnv(), limits=BlobLimits(scope_quota=100_000))
    async with service(plugins=PLUGINS, blobs=blobs) as s:
        run_id = (await s.start("go"))["run_id"]
        await s.finished(run_id)
        assert [item["json"] for item in await items(s, run_id)] == ["QUOTA_EXCEEDED"]


async def test_an_item_is_in_the_log_when_its_export_returns(autojump_clock: MockClock) -> None:
    """Blob and item are both there; nothing waits that a crash could take."""
    store = MemoryStore()
    seen: list[int] = []

    async def body(ctx: RunContext) -> None:
        await ctx.run.export_text("first")
        await ctx.run.export_bytes(bytes(100_000))
        seen.append(sum(r.name == ExportAppended.event_name for r in store._records))

    await ran(body, store)
    assert seen == [2]


class Exports:
    """An entry that exports the same things again when it is called again."""

    def __init__(self, calls: int, *, keyed: bool) -> None:
        """Be killed in the given call after each export."""
        self.calls = calls
        self.keyed = keyed

    async def __call__(self, ctx: RunContext) -> None:
        """Export equal and different bytes, some of them twice."""
        for number, fill in enumerate(b"aaba"):
            key = f"key-{number}" if self.keyed else None
            await ctx.run.export_bytes(bytes([fill]) * 100_000, key=key)
            await ctx.run.export_bytes(bytes([fill]) * 10, key=key and f"small-{key}")
            if number == self.calls:
                await trio.sleep(0.1)  # so that the outbox is empty, and this life over
                await trio.sleep_forever()


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("death", range(4))
async def test_the_same_export_after_a_crash_is_recognised(
    autojump_clock: MockClock, death: int, keyed: bool
) -> None:
    """By its key, or by being the n-th equal one: nothing is doubled and nothing is lost."""
    store, depot = MemoryStore(), MemoryDepot()
    Scripted.body = staticmethod(Exports(death, keyed=keyed))
    async with service(store, PLUGINS, blobs=BlobStore(SteadyEnv(), depot)) as s:
        run_id = (await s.start("go"))["run_id"]
        await trio.sleep(10)
    Scripted.body = staticmethod(Exports(99, keyed=keyed))
    async with service(store, PLUGINS, blobs=BlobStore(SteadyEnv(), depot)) as s:
        assert (await s.finished(run_id))["status"] == "succeeded"
        all_items = await items(s, run_id)
    assert [item["type"] for item in all_items] == ["binary_url", "binary"] * 4
    hashes = [item["metadata"]["sha256"] for item in all_items[::2]]
    assert hashes == [sha256(bytes([fill]) * 100_000).hexdigest() for fill in b"aaba"]
    assert len(depot.stored(run_id)) == 2


async def test_a_recorded_key_costs_nothing(autojump_clock: MockClock) -> None:
    """What was exported under a key is not even read again."""

    async def body(ctx: RunContext) -> None:
        first = await ctx.run.export_bytes(bytes(100_000), key="k")
        assert await ctx.run.export_bytes(in_pieces(b"other"), key="k") == first

    end = await ran(body)
    assert end.record["status"] == "succeeded"
    assert len(end.items) == 1


async def test_a_blob_of_this_run_can_be_exported_by_its_address(autojump_clock: MockClock) -> None:
    """One that is there is renewed and named; any other is refused at the call."""

    async def body(ctx: RunContext) -> None:
        await ctx.run.export_bytes(bytes(100_000))
        digest = sha256(bytes(100_000)).hexdigest()
        url, path = f"perdure:blob/{ctx.run.id}/{digest}", f"/runs/{ctx.run.id}/blobs/{digest}"
        await ctx.run.export_binary_url(url, "again")
        await ctx.run.export_binary_url(path, "as clients have it")
        for bad, code in (
            (f"perdure:blob/{ctx.run.id}/{'0' * 64}", "BLOB_NOT_FOUND"),
            (f"/runs/{ctx.run.id}/blobs/{'0' * 64}", "BLOB_NOT_FOUND"),
            (url.replace(ctx.run.id, "0192-other"), "VALIDATION_ERROR"),
            (path.replace(ctx.run.id, "0192-other"), "VALIDATION_ERROR"),
            ("perdure:blob/../../etc/passwd", "VALIDATION_ERROR"),
            ("/runs/../../etc/passwd", "VALIDATION_ERROR"),
        ):
            with pytest.raises(PluginError) as refusal:
                await ctx.run.export_binary_url(bad)
            assert refusal.value.code == code
            with pytest.raises(PluginError):
                await ctx.run.export("binary_url", bad)

    end = await ran(body)
    assert end.record["status"] == "succeeded", end.record["error"]
    assert len({item["binary_url"] for item in end.items}) == 1
    assert len(end.items) == 3
    stored = end.events(ExportAppended)
    assert {blob_at(event.binary_url) for event in stored} == {
        Blob(end.record["run_id"], sha256(bytes(100_000)).hexdigest())
    }


async def test_a_canceled_export_leaves_no_draft(autojump_clock: MockClock) -> None:
    """The run ends as it was asked to, with nothing half-written."""
    store = BlobStore(SteadyEnv())

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(100_000)
            await trio.sleep(1)

    async def body(ctx: RunContext) -> None:
        await ctx.run.export_bytes(endless())

    Scripted.body = staticmethod(body)
    async with service(plugins=PLUGINS, blobs=store) as s:
        run_id = (await s.start("go"))["run_id"]
        await trio.sleep(60)
        assert store.drafted > 0
        await s.call("runs.cancel", {"run_id": run_id}, LOCAL)
        assert (await s.finished(run_id))["status"] == "canceled"
        assert (store.drafted, await items(s, run_id)) == (0, [])


def test_the_demo_exports_files_of_every_kind() -> None:
    """One item of each type, and a file that is too large for an item."""
    from perdure.demo import Demo  # noqa: PLC0415 - as a plugin author does

    done = run_entry(Demo, "files", {"mebibytes": 2})
    assert done.record["status"] == "succeeded"
    types = ["text", "url", "json", "binary", "url", "binary_url"]
    assert [item["type"] for item in done.items] == types
    large = done.items[-1]
    assert large["metadata"]["size"] == 2 << 20
    (ref,) = done.record["result_refs"]
    assert (ref["export_item_id"], ref["type"]) == (large["export_item_id"], "binary_url")
    assert ref["description"] == large["description"]
