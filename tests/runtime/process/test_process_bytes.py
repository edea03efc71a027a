"""Bytes of any size from an entry in a process: as from an inline one, and nothing more."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import trio

from perdure.actors.run.events import ExportAppended
from perdure.eventlog import MemoryStore
from perdure.runtime.blobs.blob import Blob
from perdure.runtime.blobs.depot import MemoryDepot
from perdure.runtime.blobs.file_depot import FileDepot
from perdure.runtime.blobs.store import BlobLimits
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.process.messages import PIECE
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import CancelRun, ReadBlob
from tests.runtime.execution.filing_plugin import Filing, content
from tests.runtime.execution.test_current_run import items
from tests.runtime.process.test_processes import (
    lines,
    result,
    run,
    start,
    until_stage,
    writing,
)
from tests.runtime.service import Service, real_service

LIMIT = 64 << 10
BOTH = pytest.mark.parametrize("entry_id", ["plain", "waiting"])


@asynccontextmanager
async def filing(place: Path | None = None, **more: Any) -> AsyncIterator[Service]:
    """Run a node with the plugin that puts out bytes."""
    plugin = declared(Filing) if place is None else writing(declared(Filing), place)
    async with real_service({"filing": plugin}, **more) as s:
        s.plugin_id = "filing"
        with trio.fail_after(60):
            yield s


async def stored(s: Service, item: Any) -> bytes:
    """Read what an item holds, or the blob that it names."""
    if item["type"] == "binary":
        return b64decode(item["binary"])
    read, size = b"", item["metadata"]["size"]
    while len(read) < size:
        request = ReadBlob(
            run_id=item["run_id"], sha256=item["metadata"]["sha256"], start=len(read)
        )
        read += (await s.call("blobs.read", request))["data"]
    return read


@BOTH
async def test_large_bytes_become_a_blob_and_small_ones_stay_in_the_item(entry_id: str) -> None:
    """Up to 65,536 bytes are inline; one more has an address, size and hash (R115, R116)."""
    async with filing() as s:
        for size in (0, 1, LIMIT, LIMIT + 1, PIECE, PIECE + 1, 3_000_000):
            end = await run(s, entry_id, size=size)
            assert end["status"] == "succeeded", end["error"]
            (item,) = await items(s, end["run_id"])
            assert (item["description"], item["mime"]) == ("a file", "x/y")
            assert item["metadata"]["m"] == 1
            assert item["type"] == ("binary" if size <= LIMIT else "binary_url")
            assert await stored(s, item) == content(size)
            if size > LIMIT:
                digest = sha256(content(size)).hexdigest()
                assert item["binary_url"] == f"/runs/{end['run_id']}/blobs/{digest}"
                assert item["metadata"] == {"m": 1, "size": size, "sha256": digest}


@pytest.mark.parametrize(
    ("entry_id", "forms"),
    [
        ("plain", ["bytearray", "memoryview", "iterator", "single"]),
        ("waiting", ["bytearray", "memoryview", "iterator", "single", "awaited"]),
    ],
)
async def test_bytes_come_in_every_form_that_an_inline_entry_knows(
    entry_id: str, forms: list[str]
) -> None:
    """Whole, or piece by piece, however small the pieces are."""
    async with filing() as s:
        for form in forms:
            end = await run(s, entry_id, size=70_000, form=form)
            assert end["status"] == "succeeded", end["error"]
            (item,) = await items(s, end["run_id"])
            assert await stored(s, item) == content(70_000)


@BOTH
async def test_what_is_no_bytes_raises_at_the_call(entry_id: str) -> None:
    """Nothing is exported, and the entry fails with a code."""
    async with filing() as s:
        for form in ("text", "texts", "nothing"):
            end = await run(s, entry_id, size=1, form=form)
            assert end["error"] is not None
            assert end["error"]["code"] == "VALIDATION_ERROR"
            assert await items(s, end["run_id"]) == []


async def test_an_open_file_is_exported(tmp_path: Path) -> None:
    """As it is, whatever its lines are."""
    (tmp_path / "file").write_bytes(b"\n" * 1000 + bytes(300_000))
    async with filing(place=tmp_path) as s:
        for entry_id in ("file", "async_file"):
            end = await run(s, entry_id, path=str(tmp_path / "file"))
            (item,) = await items(s, end["run_id"])
            assert await stored(s, item) == b"\n" * 1000 + bytes(300_000)


@BOTH
async def test_many_exports_at_once_take_their_turns(entry_id: str) -> None:
    """However many an entry begins, few are being written, and all of them arrive."""
    async with filing() as s:
        end = await run(s, entry_id, size=100_000, times=20)
        assert end["status"] == "succeeded", end["error"]
        assert len(await items(s, end["run_id"])) == 20


async def test_a_refusal_is_heard_and_the_entry_goes_on() -> None:
    """What is over the quota is refused in the middle; nothing of it is left."""
    async with filing(blob_limits=BlobLimits(scope_quota=400_000)) as s:
        end = await run(s, "caught", size=5_000_000)
        assert await result(s, end) == "QUOTA_EXCEEDED"
        assert [item["type"] for item in await items(s, end["run_id"])] == ["binary", "json"]
        assert runs_of(s.node).executor.context.blobs.drafted == 0


async def test_a_recorded_key_costs_nothing() -> None:
    """What was exported under a key is not even asked for again."""
    async with filing() as s:
        assert await result(s, await run(s, "keyed")) is True


@pytest.mark.parametrize("entry_id", ["breaks_off", "async_breaks_off"])
async def test_bytes_that_break_off_are_given_up(entry_id: str) -> None:
    """The entry sees its own error; what has come so far is thrown away, and it can go on."""
    async with filing() as s:
        end = await run(s, entry_id)
        assert end["status"] == "succeeded", (end["error"], lines(s, end["run_id"]))
        assert await result(s, end) == "went on"
        assert [item["type"] for item in await items(s, end["run_id"])] == ["binary_url", "json"]
        assert runs_of(s.node).executor.context.blobs.drafted == 0
        assert await result(s, await run(s, entry_id)) == "went on"  # the process is of use still


async def test_a_process_that_dies_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    """No item, no blob, no draft; and neither does one that is canceled."""
    async with filing(depot=FileDepot(tmp_path), cancel_grace=0.2) as s:
        end = await run(s, "dies")
        assert end["error"] is not None
        assert end["error"]["code"] == "PLUGIN_CRASHED"
        run_id = await start(s, "slow")
        await until_stage(s, run_id, "sending")
        while not runs_of(s.node).executor.context.blobs.drafted:  # noqa: ASYNC110 - nothing tells of it
            await trio.sleep(0.01)
        await s.cancel(LOCAL, CancelRun(run_id=run_id))
        assert (await s.finished(run_id))["status"] == "canceled"
        assert runs_of(s.node).executor.context.blobs.drafted == 0
        assert await items(s, run_id) == await items(s, end["run_id"]) == []
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


class Watched(MemoryDepot):
    """Notes how many exports were in the log when a blob was looked for, to be published."""

    def __init__(self, store: MemoryStore) -> None:
        """Watch a log."""
        super().__init__()
        self.store = store
        self.exports: list[int] = []

    def renew(self, blob: Blob, size: int | None, now: int) -> bool:
        """Note, and renew."""
        names = [record.name for record in self.store._records]
        self.exports.append(names.count(ExportAppended.event_name))
        return super().renew(blob, size, now)


async def test_the_blob_is_there_before_its_event() -> None:
    """And the item is in the log before the process hears of it."""
    store = MemoryStore()
    depot = Watched(store)
    async with filing(store=store, depot=depot) as s:
        await run(s, "plain", size=100_000, times=3)
    assert depot.exports == [0, 1, 2]


# What a process may not do

BEGIN = {"say": "bytes", "id": 900}
DATA = b64encode(b"abc").decode()


@pytest.mark.parametrize(
    "messages",
    [
        [{"say": "piece", "id": 900, "data": DATA}],
        [BEGIN, {"say": "piece", "id": 900, "data": "not base64!"}],
        [BEGIN, {"say": "piece", "id": 900, "data": "YWJ"}],
        [BEGIN, {"say": "piece", "id": 900, "data": 7}],
        [BEGIN, {"say": "piece", "id": 900, "data": b64encode(bytes(PIECE + 1)).decode()}],
        [BEGIN, {"say": "piece", "id": 900, "path": "/etc/passwd"}],
        [BEGIN, {"say": "piece", "id": 901, "data": DATA}],
        [BEGIN, {"say": "did", "id": 900, "value": DATA}],
        [BEGIN, BEGIN],
        [{**BEGIN, "run_id": "0192-another"}],
        [BEGIN, {"say": "piece", "id": 900, "data": DATA, "run_id": "0192-another"}],
        [{"say": "step", "id": 900, "name": "s"}, {"say": "piece", "id": 900, "data": DATA}],
    ],
)
async def test_bytes_that_break_the_protocol_end_that_run_only(messages: list[Any]) -> None:
    """Out of turn, for another request or run, no base64, too long: nothing is exported (R107)."""
    async with filing(cancel_grace=0.1) as s:
        beside = await start(s, "slow")
        await until_stage(s, beside, "sending")
        end = await run(s, "says", messages=messages)
        assert end["error"] is not None
        assert end["error"]["code"] == "PLUGIN_PROTOCOL_ERROR"
        assert await items(s, end["run_id"]) == []
        assert (await s.read(beside))["status"] == "running"


async def test_a_process_has_few_files_open_here(tmp_path: Path) -> None:
    """Exports that are begun and not gone on with wait for their turn: four have a file."""
    piece = b64encode(bytes(100_000)).decode()
    later = [{"say": "piece", "id": 900 + number, "data": piece} for number in range(5)]
    async with filing(depot=FileDepot(tmp_path), cancel_grace=0.1) as s:
        four = [{"say": "bytes", "id": 900 + number} for number in range(4)]
        run_id = await start(s, "says_at_once", messages=four, later=later[:4])
        await until_stage(s, run_id, "said")
        many = [{"say": "bytes", "id": 900 + number} for number in range(60)]
        end = await run(s, "says_at_once", messages=many, later=later)
        assert end["error"] is not None  # one of the five was not called for
        assert end["error"]["code"] == "PLUGIN_PROTOCOL_ERROR"
        await s.cancel(LOCAL, CancelRun(run_id=run_id))
        assert (await s.finished(run_id))["status"] == "canceled"


async def test_too_many_bytes_for_an_item_are_refused_at_the_call() -> None:
    """However many: one too many, or more than a message may have (R115)."""
    async with filing() as s:
        assert await result(s, await run(s, "too_much", size=LIMIT)) == "fine"
        for size in (LIMIT + 1, 2 << 20):
            assert await result(s, await run(s, "too_much", size=size)) == "PAYLOAD_TOO_LARGE"


async def test_signals_in_the_process_do_not_garble_its_messages() -> None:
    """A write that a signal cuts short is gone on with."""
    async with filing() as s:
        end = await run(s, "signals")
        assert end["status"] == "succeeded", end["error"]
        (item,) = await items(s, end["run_id"])
        assert await stored(s, item) == content(10 * PIECE)


async def test_a_thread_gives_its_pieces_in_the_thread() -> None:
    """They may take their time, and ask whether the run was cancelled."""
    async with filing() as s:
        end = await run(s, "thread")
        assert await result(s, end) is True, end["error"]
        item = (await items(s, end["run_id"]))[0]
        assert await stored(s, item) == content(100_000)
