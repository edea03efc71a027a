"""Bytes over HTTP: into a run that is running, and out of it in ranges."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from hashlib import sha256
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.runtime.blobs.depot import MemoryDepot
from perdure.runtime.blobs.store import CHUNK, BlobLimits, BlobStore
from perdure.runtime.plugins.plugin import declared, entry, plugin
from perdure.runtime.plugins.run_context import RunContext
from tests.eventlog.conftest import SteadyEnv
from tests.runtime.http.client import Client, client, error_of
from tests.runtime.websocket.harness import serving

DATA = bytes(range(256)) * 8
SHA256 = sha256(DATA).hexdigest()
LARGE = DATA * 40


@plugin("test")
class Writer:
    """Exports more bytes than an item holds."""

    @entry
    async def write(self, ctx: RunContext) -> None:
        """Export a file, and mark it as the result."""
        ctx.run.result(await ctx.run.export_bytes(LARGE, "a file"))


async def upload(asking: Client, run_id: str, data: bytes, **options: Any) -> str:
    """Bring bytes to a run; give their hash."""
    opened = await asking.post(f"/runs/{run_id}/uploads", options)
    assert opened.status_code == 201, opened.text
    sent = await asking.http.put(opened.headers["location"], content=data)
    assert sent.status_code == 200, sent.text
    return str(sent.json()["sha256"])


async def test_bytes_go_in_and_come_out(autojump_clock: MockClock) -> None:
    """R127: open an upload, stream into it, and read the same bytes with the same hash."""
    async with client() as asking:
        run_id = await asking.started("deaf")
        await trio.sleep(1)
        opened = await asking.post(f"/runs/{run_id}/uploads")
        assert opened.status_code == 201
        assert opened.headers["location"] == f"/uploads/{opened.json()['upload_id']}"
        assert set(opened.json()) == {"upload_id", "run_id", "size_limit", "expires_at", "cursor"}

        async def pieces() -> AsyncIterator[bytes]:
            for start in range(0, len(DATA), 100):
                yield DATA[start : start + 100]

        sent = await asking.http.put(opened.headers["location"], content=pieces())
        assert sent.json() == {
            "binary_url": f"/runs/{run_id}/blobs/{SHA256}",
            "sha256": SHA256,
            "size": len(DATA),
        }
        found = await asking.get(f"/runs/{run_id}/blobs/{SHA256}")
        assert (found.status_code, found.content) == (200, DATA)
        assert found.headers["etag"] == f'"{SHA256}"'
        assert found.headers["content-length"] == str(len(DATA))
        assert found.headers["content-disposition"] == f'attachment; filename="{SHA256}"'
        assert found.headers["x-content-type-options"] == "nosniff"
        assert found.headers["content-type"] == "application/octet-stream"
        assert found.headers["accept-ranges"] == "bytes"


async def test_the_address_of_an_item_can_be_fetched(autojump_clock: MockClock) -> None:
    """R52: wherever an item is read, its binary_url is a path of this server with the bytes."""
    async with (
        client(plugins={"test": declared(Writer)}) as asking,
        serving(asking.behind) as sockets,
    ):
        created = (await asking.create("write", mode="sync")).json()
        run_id = created["run_id"]
        page = (await asking.get(f"/runs/{run_id}/export")).json()
        triggered = {"plugin_id": "test", "entry_id": "write"}
        (data,) = (await asking.post("/plugin/trigger", triggered)).json()["data"]
        async with sockets.connect() as socket:
            called = await socket.call("runs.export", run_id=run_id)
            await socket.send({"id": 1, "follow": {"channel": "run", "run_id": run_id}})
            followed = [
                event["export"]["binary_url"]
                for message in await socket.until("end")
                for event in message.get("events", ())
                if "export" in event
            ]
        seen = [item["binary_url"] for item in (*created["result"], *page["items"], data)]
        seen += [item["binary_url"] for item in called["ok"]["items"]] + followed
        assert len(seen) == 5
        for address in seen:
            assert (await asking.get(address)).content == LARGE


async def test_more_than_was_allowed_is_not_even_read(autojump_clock: MockClock) -> None:
    """R127: over the cap is 413, and the rest stays with the sender."""
    async with client() as asking:
        run_id = await asking.started("deaf")
        await trio.sleep(1)
        opened = await asking.post(f"/runs/{run_id}/uploads", {"size_limit": 1000})
        pulled = 0

        async def endless() -> AsyncGenerator[bytes, None]:
            nonlocal pulled
            while True:
                pulled += 1
                yield bytes(300)

        async with aclosing(endless()) as body:
            sent = await asking.http.put(opened.headers["location"], content=body)
        error = error_of(sent, 413)
        assert (error["code"], error["details"]) == ("PAYLOAD_TOO_LARGE", {"limit": 1000})
        assert pulled == 4
        again = await asking.http.put(opened.headers["location"], content=bytes(1000))
        assert again.json()["size"] == 1000
        whole = await asking.post(f"/runs/{run_id}/uploads", {"size_limit": 1 << 60})
        assert error_of(whole, 413)["code"] == "PAYLOAD_TOO_LARGE"


async def test_an_upload_can_be_sent_again(autojump_clock: MockClock) -> None:
    """PUT twice is PUT once, as HTTP has it; other bytes are refused."""
    async with client() as asking:
        run_id = await asking.started("deaf")
        await trio.sleep(1)
        where = (await asking.post(f"/runs/{run_id}/uploads")).headers["location"]
        first = await asking.http.put(where, content=DATA)
        assert (await asking.http.put(where, content=DATA)).json() == first.json()
        for other in (DATA + b"x", DATA[:-1], b"x" * len(DATA), b""):
            refused = await asking.http.put(where, content=other)
            assert error_of(refused, 404)["code"] == "UPLOAD_NOT_FOUND"


async def test_an_upload_expires(autojump_clock: MockClock) -> None:
    """R127: an upload that expired is 404, as is one that nobody opened."""
    async with client() as asking:
        run_id = await asking.started("question")
        await trio.sleep(1)
        opened = await asking.post(f"/runs/{run_id}/uploads")
        await trio.sleep(3601)
        for path in (opened.headers["location"], "/uploads/nobody"):
            sent = await asking.http.put(path, content=b"late")
            assert error_of(sent, 404)["code"] == "UPLOAD_NOT_FOUND"


async def test_only_a_run_that_is_running_takes_bytes(autojump_clock: MockClock) -> None:
    """R127: an upload is for a run that is active, when it is opened and when it is sent."""
    async with client() as asking:
        run_id = await asking.started("question")
        await trio.sleep(1)
        opened = await asking.post(f"/runs/{run_id}/uploads")
        await asking.post(f"/runs/{run_id}/cancel", {"force": True})
        await asking.ended(run_id)
        sent = await asking.http.put(opened.headers["location"], content=b"late")
        assert error_of(sent, 409)["code"] == "RUN_NOT_RUNNING"
        late = await asking.post(f"/runs/{run_id}/uploads")
        assert error_of(late, 409)["code"] == "RUN_NOT_RUNNING"


async def test_there_may_be_no_room(autojump_clock: MockClock) -> None:
    """A full depot is 507, and says what to do."""
    blobs = BlobStore(SteadyEnv(), limits=BlobLimits(quota=1000))
    async with client(blobs=blobs) as asking:
        run_id = await asking.started("deaf")
        await trio.sleep(1)
        opened = await asking.post(f"/runs/{run_id}/uploads")
        sent = await asking.http.put(opened.headers["location"], content=DATA)
        error = error_of(sent, 507)
        assert error["code"] == "QUOTA_EXCEEDED"
        assert "raise the quota" in error["message"]


@pytest.mark.parametrize(
    ("asked", "status", "start", "end"),
    [
        ("bytes=0-0", 206, 0, 1),
        ("bytes=0-99", 206, 0, 100),
        ("bytes=100-", 206, 100, len(DATA)),
        ("bytes=-100", 206, len(DATA) - 100, len(DATA)),
        ("bytes=-99999", 206, 0, len(DATA)),
        ("bytes=10-99999", 206, 10, len(DATA)),
        ("bytes=10-" + "9" * 23, 206, 10, len(DATA)),
        ("bytes=-" + "9" * 5000, 206, 0, len(DATA)),
        ("bytes=" + "0" * 5000 + "1-2", 206, 1, 3),
        ("BYTES= 1-2 ", 206, 1, 3),
        ("bytes=0-1,5-6", 200, 0, len(DATA)),
        ("bytes=5-1", 200, 0, len(DATA)),
        ("bytes=a-b", 200, 0, len(DATA)),
        ("bytes=-", 200, 0, len(DATA)),
        ("items=0-1", 200, 0, len(DATA)),
    ],
)
async def test_a_range_is_read(
    asked: str, status: int, start: int, end: int, autojump_clock: MockClock
) -> None:
    """One range is answered with it; what cannot be read or names several, with everything."""
    async with client() as asking:
        run_id = await asking.started("deaf")
        await trio.sleep(1)
        path = f"/runs/{run_id}/blobs/{await upload(asking, run_id, DATA)}"
        found = await asking.get(path, headers={"range": asked})
        assert (found.status_code, found.content) == (status, DATA[start:end])
        assert found.headers["content-length"] == str(end - start)
        if status == 206:
            assert found.headers["content-range"] == f"bytes {start}-{end - 1}/{len(DATA)}"
        head = await asking.http.head(path, headers={"range": asked})
        assert (head.status_code, head.content) == (status, b"")
        assert head.headers == found.headers


async def test_a_range_that_is_not_there(autojump_clock: MockClock) -> None:
    """416 says how many bytes there are; an empty blob has no range at all."""
    async with client() as asking:
        run_id = await asking.started("deaf")
        await trio.sleep(1)
        path = f"/runs/{run_id}/blobs/{await upload(asking, run_id, DATA)}"
        for start in (str(len(DATA)), "9" * 23, "9" * 5000):
            beyond = await asking.get(path, headers={"range": f"bytes={start}-"})
            assert error_of(beyond, 416)["code"] == "INVALID_RANGE"
            assert beyond.headers["content-range"] == f"bytes */{len(DATA)}"
        empty = f"/runs/{run_id}/blobs/{await upload(asking, run_id, b'')}"
        assert (await asking.get(empty)).content == b""
        nothing = await asking.get(empty, headers={"range": "bytes=0-"})
        assert nothing.headers["content-range"] == "bytes */0"


async def test_who_has_it_gets_less(autojump_clock: MockClock) -> None:
    """If-None-Match is 304; If-Range gives the range of this blob, and all of another."""
    async with client() as asking:
        run_id = await asking.started("deaf")
        await trio.sleep(1)
        path = f"/runs/{run_id}/blobs/{await upload(asking, run_id, DATA)}"
        for known in (f'"{SHA256}"', f'W/"{SHA256}"', f'"x", "{SHA256}"', "*"):
            have = await asking.get(path, headers={"if-none-match": known})
            assert (have.status_code, have.content) == (304, b"")
        other = await asking.get(path, headers={"if-none-match": '"x"'})
        assert other.status_code == 200
        for known, status in ((f'"{SHA256}"', 206), ('"x"', 200), ("Mon, 01 Jan 2024", 200)):
            ranged = {"range": "bytes=0-9", "if-range": known}
            assert (await asking.get(path, headers=ranged)).status_code == status


async def test_a_blob_that_is_not_there(autojump_clock: MockClock) -> None:
    """404 for an unknown hash or run, 422 for what cannot be a hash."""
    async with client() as asking:
        run_id = await asking.started("deaf")
        missing = await asking.get(f"/runs/{run_id}/blobs/{SHA256}")
        assert error_of(missing, 404)["code"] == "BLOB_NOT_FOUND"
        nowhere = await asking.get(f"/runs/nowhere/blobs/{SHA256}")
        assert error_of(nowhere, 404)["code"] == "RUN_NOT_FOUND"
        wrong = await asking.get(f"/runs/{run_id}/blobs/{SHA256.upper()}")
        assert error_of(wrong, 422)["code"] == "VALIDATION_ERROR"


@pytest.mark.parametrize("size", [2000, CHUNK + 1, 3 * CHUNK])
async def test_of_a_damaged_blob_the_end_is_missing(size: int, autojump_clock: MockClock) -> None:
    """Nobody takes it for the whole: the answer is cut off before its length is reached."""
    depot = Damaging()
    async with client(blobs=BlobStore(SteadyEnv(), depot)) as asking:
        run_id = await asking.started("deaf")
        await trio.sleep(1)
        found = await upload(asking, run_id, bytes(size))
        depot.is_damaged = True
        sent: list[Any] = []

        async def keep(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "GET",
            "path": f"/runs/{run_id}/blobs/{found}",
            "query_string": b"",
            "headers": [],
        }
        with pytest.raises(Exception, match="BLOB_DAMAGED"):
            await asking.app(scope, trio.sleep_forever, keep)
        assert sum(len(message.get("body", b"")) for message in sent) < size


class Damaging(MemoryDepot):
    """Changes what it holds."""

    is_damaged = False

    def open(self, blob: Any) -> Any:
        """Give the content, with its last byte changed if that is wanted."""
        content = super().open(blob)
        if self.is_damaged and content is not None:
            return _Changed(content)
        return content


class _Changed:
    def __init__(self, content: Any) -> None:
        self.size = content.size
        self._content = content

    def read(self, start: int, length: int) -> bytes:
        """Read, and change the last byte of all."""
        piece: bytes = self._content.read(start, length)
        return piece[:-1] + b"\x01" if start + len(piece) == self.size else piece

    def close(self) -> None:
        """Close."""
        self._content.close()
