"""Uploads: bytes that are brought to a run while it runs, and read back in ranges."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from hashlib import sha256
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.runtime.blobs.depot import MemoryDepot
from perdure.runtime.blobs.store import CHUNK, BlobLimits, BlobStore
from perdure.runtime.kernel.principal import LOCAL, Permission, Principal
from perdure.runtime.plugins.run_context import RunContext
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import CancelRun
from perdure.runtime.runs.upload_slots import (
    MAX_UPLOADS,
    MAX_UPLOADS_OF_ONE,
    UPLOAD_IDLE,
    UPLOAD_LIFE,
)
from perdure.runtime.runs.uploads import COLLECT_EVERY, Uploads
from tests.eventlog.conftest import SteadyEnv
from tests.runtime.execution.test_current_run import PLUGINS, Scripted, items
from tests.runtime.service import Service, refused, service

OTHER = Principal("other", "local")
DATA = bytes(range(256)) * 3000


async def chunks(data: bytes, pause: float = 0.0) -> AsyncGenerator[bytes, None]:
    """Give bytes as a client would send them."""
    for start in range(0, len(data), 100_000):
        await trio.sleep(pause)
        yield data[start : start + 100_000]


class Uploading:
    """A run that waits for an answer, and the uploads to it."""

    def __init__(self, s: Service, run_id: str, store: BlobStore) -> None:
        """Wrap a service."""
        self.s = s
        self.run_id = run_id
        self.store = store
        self.blobs: Uploads = runs_of(s.node).uploads

    async def begin(self, principal: Principal = LOCAL, **more: Any) -> str:
        """Open an upload."""
        request = {"run_id": self.run_id, **more}
        return str((await self.s.call("blobs.create_upload", request, principal))["upload_id"])

    async def send(self, upload_id: str, data: bytes = DATA, principal: Principal = LOCAL) -> Any:
        """Send bytes to an upload."""
        async with aclosing(chunks(data)) as sending:
            return await self.blobs.receive(principal, upload_id, sending)

    async def read(self, digest: str, principal: Principal = LOCAL, **more: Any) -> Any:
        """Read a range."""
        request = {"run_id": self.run_id, "sha256": digest, **more}
        return await self.s.call("blobs.read", request, principal)

    async def end(self) -> None:
        """Let the run end."""
        await self.s.cancel(LOCAL, CancelRun(run_id=self.run_id))
        await self.s.finished(self.run_id)


@asynccontextmanager
async def uploading(**limits: Any) -> AsyncIterator[Uploading]:
    """Run a node with a run that waits."""

    async def body(ctx: RunContext) -> Any:
        answer = await ctx.run.ask("a file, please")
        if answer is not None:
            await ctx.run.export_binary_url(answer)
        await ctx.run.ask("anything else?")

    Scripted.body = staticmethod(body)
    store = BlobStore(SteadyEnv(), MemoryDepot(), limits=BlobLimits(**limits))
    async with service(plugins=PLUGINS, blobs=store) as s:
        run_id = (await s.start("go"))["run_id"]
        await trio.sleep(1)
        yield Uploading(s, run_id, store)


async def test_what_is_uploaded_is_read_back(autojump_clock: MockClock) -> None:
    """The same bytes, the same hash, in ranges and as a stream (R127)."""
    async with uploading() as u:
        answer = await u.send(await u.begin())
        digest = sha256(DATA).hexdigest()
        assert answer == {
            "binary_url": f"/runs/{u.run_id}/blobs/{digest}",
            "sha256": digest,
            "size": len(DATA),
        }
        piece = await u.read(digest)
        assert (piece["data"], piece["size"], piece["sha256"]) == (DATA, len(DATA), digest)
        assert (await u.read(digest, start=5, length=3))["data"] == DATA[5:8]
        assert (await u.read(digest, start=len(DATA)))["data"] == b""
        await refused("INVALID_RANGE", lambda: u.read(digest, start=len(DATA) + 1))
        await refused("BLOB_NOT_FOUND", lambda: u.read("0" * 64))
        await refused("VALIDATION_ERROR", lambda: u.read("../.."))
        async with u.blobs.open(LOCAL, u.run_id, digest) as content:
            assert b"".join([piece async for piece in content.pieces()]) == DATA
        await u.end()
        assert (await u.read(digest))["data"] == DATA  # readable after the end


async def test_an_upload_can_be_written_piece_by_piece(autojump_clock: MockClock) -> None:
    """A surface that cannot stream writes and finishes; finishing twice changes nothing."""
    async with uploading() as u:
        upload = await u.begin()
        assert await u.blobs.write(LOCAL, upload, b"one ") == 4
        assert await u.blobs.write(LOCAL, upload, b"two") == 7
        answer = await u.blobs.finish(LOCAL, upload)
        assert answer["sha256"] == sha256(b"one two").hexdigest()
        assert await u.blobs.finish(LOCAL, upload) == answer
        await refused("UPLOAD_NOT_FOUND", lambda: u.blobs.write(LOCAL, upload, b"three"))
        empty = await u.blobs.finish(LOCAL, await u.begin())
        assert (await u.read(empty["sha256"]))["size"] == 0


async def test_an_upload_over_its_cap_is_refused(autojump_clock: MockClock) -> None:
    """Whether the client or the quota set the cap; it can be sent again, smaller (R127)."""
    async with uploading(scope_quota=2 * CHUNK) as u:
        upload = await u.begin(size_limit=1000)
        await refused("PAYLOAD_TOO_LARGE", lambda: u.send(upload, bytes(1001)))
        assert (await u.send(upload, bytes(1000)))["size"] == 1000
        await refused("PAYLOAD_TOO_LARGE", lambda: u.begin(size_limit=2 * CHUNK + 1))
        unbounded = await u.begin()
        await refused("PAYLOAD_TOO_LARGE", lambda: u.send(unbounded, bytes(2 * CHUNK + 1)))
        await refused("QUOTA_EXCEEDED", lambda: u.send(unbounded, bytes(2 * CHUNK)))
        assert u.store.drafted == 0


async def test_an_upload_expires(autojump_clock: MockClock) -> None:
    """What is sent too late, or too slowly, or to nowhere, is not found (R127)."""
    async with uploading() as u:
        late, slow = await u.begin(), await u.begin()
        async with aclosing(chunks(DATA, pause=UPLOAD_LIFE / 3)) as sending:
            await refused("UPLOAD_NOT_FOUND", lambda: u.blobs.receive(LOCAL, slow, sending))
        await refused("UPLOAD_NOT_FOUND", lambda: u.send(late))
        await refused("UPLOAD_NOT_FOUND", lambda: u.blobs.finish(LOCAL, late))
        await refused("UPLOAD_NOT_FOUND", lambda: u.send("0192-nowhere"))
        assert u.store.drafted == 0


async def test_bytes_are_taken_only_while_the_run_runs(autojump_clock: MockClock) -> None:
    """Neither opened nor finished after its end (R127)."""
    async with uploading() as u:
        upload = await u.begin()
        await u.blobs.write(LOCAL, upload, b"on the way")
        await u.end()
        await refused("RUN_NOT_RUNNING", u.begin)
        await refused("RUN_NOT_RUNNING", lambda: u.blobs.finish(LOCAL, upload))
        assert u.store.drafted == 0
        missing = {"run_id": "0192-nobody"}
        await refused("RUN_NOT_FOUND", lambda: u.s.call("blobs.create_upload", missing))


async def test_bytes_belong_to_a_tenant(autojump_clock: MockClock) -> None:
    """Others find neither the run, nor the upload, nor the blob."""
    async with uploading() as u:
        await refused("RUN_NOT_FOUND", lambda: u.begin(OTHER))
        upload = await u.begin()
        await refused("UPLOAD_NOT_FOUND", lambda: u.send(upload, principal=OTHER))
        digest = (await u.send(upload))["sha256"]
        await refused("RUN_NOT_FOUND", lambda: u.read(digest, OTHER))
        with pytest.raises(Exception, match="RUN_NOT_FOUND"):
            async with u.blobs.open(OTHER, u.run_id, digest):
                raise AssertionError
        reader = Principal("local", "x", frozenset({Permission.READ}))
        await refused("PERMISSION_DENIED", lambda: u.begin(reader))
        await refused("PERMISSION_DENIED", lambda: u.s.call("blobs.collect", {}, reader))


async def test_an_abandoned_upload_leaves_nothing(autojump_clock: MockClock) -> None:
    """One that breaks off can be sent again; one that is never finished is dropped in time."""
    async with uploading() as u:
        upload = await u.begin()

        async def broken() -> AsyncIterator[bytes]:
            yield bytes(2 * CHUNK)
            raise ConnectionResetError

        with pytest.raises(ConnectionResetError):
            await u.blobs.receive(LOCAL, upload, broken())
        assert u.store.drafted == 0
        await u.blobs.write(LOCAL, upload, bytes(2 * CHUNK))
        assert u.store.drafted == 2 * CHUNK
        await trio.sleep(UPLOAD_LIFE + 2 * COLLECT_EVERY)
        assert u.store.drafted == 0


async def test_open_uploads_are_bounded_for_one_client_and_in_all(
    autojump_clock: MockClock,
) -> None:
    """One that opens too many leaves room for others; together they cannot open more either."""
    async with uploading() as u:
        colleagues = [Principal(LOCAL.tenant, name) for name in ("a", "b", "c")]
        for colleague in colleagues[: MAX_UPLOADS // MAX_UPLOADS_OF_ONE]:
            for _ in range(MAX_UPLOADS_OF_ONE):
                await u.begin(colleague)
            await refused("OVERLOADED", lambda: u.begin(colleague))  # noqa: B023 - called here
        await refused("OVERLOADED", lambda: u.begin(colleagues[-1]))
        await trio.sleep(UPLOAD_LIFE + 1)
        await u.begin()


async def test_an_idle_upload_gives_way_and_one_that_moves_does_not(
    autojump_clock: MockClock,
) -> None:
    """Nobody holds slots by doing nothing."""
    async with uploading() as u:
        uploads = [await u.begin() for _ in range(MAX_UPLOADS_OF_ONE)]
        await trio.sleep(UPLOAD_IDLE / 2)
        await u.blobs.write(LOCAL, uploads[0], b"a")
        await trio.sleep(UPLOAD_IDLE / 2)
        for _ in uploads[1:]:
            await u.begin()
        await refused("OVERLOADED", u.begin)
        await refused("UPLOAD_NOT_FOUND", lambda: u.send(uploads[1]))
        await u.blobs.write(LOCAL, uploads[0], b"b")
        assert (await u.blobs.finish(LOCAL, uploads[0]))["size"] == 2


async def test_the_slots_of_a_run_are_free_when_it_ends(autojump_clock: MockClock) -> None:
    """Also that of an upload to which something is sent just then."""
    async with uploading() as u:
        uploads = [await u.begin() for _ in range(MAX_UPLOADS_OF_ONE)]
        other = (await u.s.start("go"))["run_id"]
        await trio.sleep(1)
        async with trio.open_nursery() as nursery:

            async def send_slowly() -> None:
                async with aclosing(chunks(DATA, pause=1)) as sending:
                    await refused(
                        "RUN_NOT_RUNNING", lambda: u.blobs.receive(LOCAL, uploads[0], sending)
                    )

            nursery.start_soon(send_slowly)
            await trio.sleep(1.5)
            await u.end()
            await trio.sleep(0.1)
            u.run_id = other
            for _ in uploads[1:]:
                await u.begin()
            await refused("OVERLOADED", u.begin)
        await trio.sleep(0.1)
        await u.begin()


async def test_finished_uploads_are_not_open_ones(autojump_clock: MockClock) -> None:
    """Any number can be brought one after the other; each can still be sent again."""
    async with uploading() as u:
        first = await u.begin()
        blob = await u.send(first, b"a")
        for _ in range(MAX_UPLOADS):
            await u.send(await u.begin(), b"b")
        assert await u.send(first, b"a") == blob
        await trio.sleep(UPLOAD_LIFE + 1)
        await u.begin()
        assert not u.blobs.slots._closed


async def test_the_oldest_finished_uploads_are_forgotten(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept for those who send again is bounded; the blobs stay."""
    monkeypatch.setattr("perdure.runtime.runs.upload_slots.MAX_CLOSED", 3)
    async with uploading() as u:
        uploads = [await u.begin() for _ in range(4)]
        sent = [await u.send(upload, b"abcd"[: 4 - n]) for n, upload in enumerate(uploads)]
        await refused("UPLOAD_NOT_FOUND", lambda: u.send(uploads[0], b"abcd"))
        assert await u.send(uploads[1], b"abc") == sent[1]
        assert (await u.read(sent[0]["sha256"]))["data"] == b"abcd"


async def test_an_upload_that_an_event_names_is_kept(autojump_clock: MockClock) -> None:
    """In an answer, for example, or in an item; what nobody names is collected after the grace."""
    async with uploading(grace=3600) as u:
        kept = await u.send(await u.begin())
        lost = await u.send(await u.begin(), b"lost")
        (question,) = (await u.s.read(u.run_id))["questions"]
        answer = {"run_id": u.run_id, "question_id": question, "answer": kept["binary_url"]}
        await u.s.call("runs.answer", answer)
        assert (await u.s.call("blobs.collect", {}))["blobs"] == 0
        await trio.sleep(2 * 3600 + 100)
        removed = await u.s.call("blobs.collect", {})
        assert removed["blobs"] == 0  # it was done in passing
        await refused("BLOB_NOT_FOUND", lambda: u.read(lost["sha256"]))
        assert (await u.read(kept["sha256"]))["data"] == DATA
        (item,) = await items(u.s, u.run_id)
        assert item["binary_url"] == kept["binary_url"]


async def test_a_collection_that_fails_hurts_nobody(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is logged, and the next one does what was left."""
    async with uploading(grace=1) as u:
        digest = (await u.send(await u.begin()))["sha256"]

        def scopes(_: MemoryDepot) -> list[str]:
            raise PermissionError("not yours")

        with monkeypatch.context() as failing:
            failing.setattr(MemoryDepot, "scopes", scopes)
            await trio.sleep(COLLECT_EVERY + 100)
        assert "blobs cannot be collected now" in caplog.text
        assert (await u.read(digest))["data"] == DATA
        await trio.sleep(COLLECT_EVERY + 100)
        await refused("BLOB_NOT_FOUND", lambda: u.read(digest))
