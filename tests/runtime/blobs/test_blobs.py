"""Blobs: stored once, bounded, and read in ranges."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.eventlog import DiskFull
from perdure.runtime.blobs.blob import Blob
from perdure.runtime.blobs.file_depot import FileDepot
from perdure.runtime.blobs.store import CHUNK, BlobLimits, BlobStore
from perdure.runtime.kernel.errors import OperationError
from tests.eventlog.conftest import SteadyEnv
from tests.runtime.service import refused

SCOPE = "0192-run"
HOUR = 3600


async def put(blobs: BlobStore, data: bytes, scope: str = SCOPE) -> Blob:
    """Write a blob and let go of it."""
    async with blobs.draft(scope) as draft:
        await draft.write(data)
        return await draft.publish()


async def read(blobs: BlobStore, blob: Blob, *span: int) -> bytes:
    """Read a range of a blob."""
    async with blobs.open(blob) as content:
        return await content.read(*span)


@pytest.fixture
def blobs(env: SteadyEnv, tmp_path: Path) -> BlobStore:
    """Blobs on disk."""
    return BlobStore(env, FileDepot(tmp_path))


def files(tmp_path: Path) -> list[Path]:
    """Every file there is."""
    return [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 17])
async def test_what_is_written_is_read(
    autojump_clock: MockClock, blobs: BlobStore, size: int
) -> None:
    """In pieces of any size, on either side of what is written at once."""
    data = os.urandom(size)
    async with blobs.draft(SCOPE) as draft:
        for start in range(0, size, 100_001):
            await draft.write(data[start : start + 100_001])
        blob = await draft.publish()
        assert draft.size == size
    assert await read(blobs, blob) == data
    async with blobs.open(blob) as content:
        assert content.size == size
        assert [len(piece) async for piece in content.pieces() if len(piece) > CHUNK] == []


RANGES = [(0, 0), (0, 1), (0, 10), (9, 1), (9, 5), (3, 4), (10, 0), (10, 5), (0, 1 << 40)]


@pytest.mark.parametrize("span", RANGES)
async def test_a_range_ends_where_the_blob_does(
    autojump_clock: MockClock, blobs: BlobStore, span: tuple[int, int]
) -> None:
    """Whatever is asked for, what is there is given."""
    blob = await put(blobs, b"0123456789")
    start, length = span
    assert await read(blobs, blob, start, length) == b"0123456789"[start : start + length]


@pytest.mark.parametrize("span", [(11, 1), (-1, 1), (0, -1), (11,)])
async def test_a_range_that_is_not_there_is_refused(
    autojump_clock: MockClock, blobs: BlobStore, span: tuple[int, ...]
) -> None:
    """With the size, so that the next try can be right."""
    blob = await put(blobs, b"0123456789")
    refusal = await refused("INVALID_RANGE", lambda: read(blobs, blob, *span))
    assert refusal.details == {"size": 10}


async def test_what_is_not_there_is_not_found(autojump_clock: MockClock, blobs: BlobStore) -> None:
    """Also if its name could never be one."""
    for blob in (Blob(SCOPE, "a" * 64), Blob("../..", "a" * 64), Blob(SCOPE, "..")):
        await refused("BLOB_NOT_FOUND", partial(read, blobs, blob))
    with pytest.raises(OperationError, match="cannot have blobs"):
        blobs.new_draft("../..")


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b"X" + b[1:], lambda b: b + b"!"])
async def test_damage_is_found_when_a_blob_is_read(
    autojump_clock: MockClock,
    blobs: BlobStore,
    tmp_path: Path,
    damage: Callable[[bytes], bytes],
) -> None:
    """Bytes changed, missing or added: whoever reads all of them hears of it."""
    blob = await put(blobs, b"0123456789")
    (file,) = files(tmp_path)
    file.write_bytes(damage(b"0123456789"))
    await refused("BLOB_DAMAGED", lambda: read(blobs, blob))
    assert await read(blobs, blob, 1, 3) == b"123"  # a part cannot be checked


async def test_a_blob_that_is_cut_off_while_it_is_read_is_damaged(
    autojump_clock: MockClock, blobs: BlobStore, tmp_path: Path
) -> None:
    """A reader never waits for bytes that do not come."""
    blob = await put(blobs, bytes(2 * CHUNK))
    (file,) = files(tmp_path)
    async with blobs.open(blob) as content:
        pieces = content.pieces()
        await anext(pieces)
        os.truncate(file, CHUNK)
        await refused("BLOB_DAMAGED", lambda: anext(pieces))


# Once


async def test_equal_bytes_are_stored_once_in_a_scope(
    autojump_clock: MockClock, blobs: BlobStore, tmp_path: Path, env: SteadyEnv
) -> None:
    """Written again they are renewed; another scope has its own."""
    first = await put(blobs, b"same")
    (file,) = files(tmp_path)
    before = file.stat().st_mtime_ns
    await env.sleep(HOUR)
    assert await put(blobs, b"same") == first
    assert files(tmp_path) == [file]
    assert file.stat().st_mtime_ns >= before + HOUR * 10**9
    assert await put(blobs, b"same", "0192-other") != first
    assert len(files(tmp_path)) == 2


async def test_equal_bytes_written_at_once_are_stored_once(
    autojump_clock: MockClock, blobs: BlobStore, tmp_path: Path
) -> None:
    """Twenty writers get one address, and all of them can rely on it."""
    got: list[Blob] = []

    async def write() -> None:
        got.append(await put(blobs, b"same" * CHUNK))

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(write)
    assert len(set(got)) == 1
    assert len(files(tmp_path)) == 1
    assert blobs.drafted == 0


async def test_a_draft_that_is_given_up_leaves_nothing(
    autojump_clock: MockClock, blobs: BlobStore, tmp_path: Path
) -> None:
    """Whether its writer fails or is cancelled."""
    with trio.move_on_after(5):
        async with blobs.draft(SCOPE) as draft:
            await draft.write(bytes(2 * CHUNK))
            assert len(files(tmp_path)) == 1
            await trio.sleep_forever()
    assert files(tmp_path) == []

    async def fail() -> None:
        async with blobs.draft(SCOPE) as draft:
            await draft.write(bytes(2 * CHUNK))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert (files(tmp_path), blobs.drafted) == ([], 0)


async def test_start_up_removes_what_a_dead_process_was_writing(
    autojump_clock: MockClock, tmp_path: Path, env: SteadyEnv
) -> None:
    """Its drafts belong to nobody; its blobs stay."""
    old = BlobStore(env, FileDepot(tmp_path))
    blob = await put(old, b"kept")
    draft = old.new_draft(SCOPE)
    await draft.write(bytes(CHUNK))
    new = BlobStore(SteadyEnv(), FileDepot(tmp_path))
    await new.clean_up()
    assert len(files(tmp_path)) == 1
    assert await read(new, blob) == b"kept"
    await draft.aclose()


# Bounds


async def test_a_scope_has_a_quota(autojump_clock: MockClock, env: SteadyEnv) -> None:
    """Up to the last byte; what is stored already counts, written again it costs nothing."""
    blobs = BlobStore(env, limits=BlobLimits(scope_quota=100))
    await put(blobs, bytes(60))
    await put(blobs, b"x" * 40)
    await refused("QUOTA_EXCEEDED", lambda: put(blobs, b"y"))
    await refused("QUOTA_EXCEEDED", lambda: put(blobs, bytes(101), "0192-other"))
    await put(blobs, bytes(60))  # as an entry does that is called again
    await put(blobs, bytes(60), "0192-other")
    assert blobs.drafted == 0


async def test_all_blobs_have_a_quota(
    autojump_clock: MockClock, env: SteadyEnv, tmp_path: Path
) -> None:
    """Those of an earlier process count, and so does what is being written."""
    await put(BlobStore(env, FileDepot(tmp_path)), bytes(CHUNK))
    limits = BlobLimits(quota=3 * CHUNK)
    blobs = BlobStore(env, FileDepot(tmp_path), limits=limits)
    async with blobs.draft("0192-one") as one:
        await one.write(b"1" * CHUNK)
        async with blobs.draft("0192-two") as two:
            await two.write(b"2" * CHUNK)
            await refused("QUOTA_EXCEEDED", lambda: two.write(b"3" * 2 * CHUNK))
        await one.write(b"4" * CHUNK)
        await one.publish()
    await refused("QUOTA_EXCEEDED", lambda: put(blobs, b"5"))


async def test_a_draft_has_a_limit(autojump_clock: MockClock, blobs: BlobStore) -> None:
    """One byte more is refused before anything of it is written."""
    async with blobs.draft(SCOPE, limit=10) as draft:
        await draft.write(bytes(10))
        refusal = await refused("PAYLOAD_TOO_LARGE", lambda: draft.write(b"x"))
        assert refusal.details == {"limit": 10}


async def test_a_full_disk_says_so(
    autojump_clock: MockClock, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is nobody's fault, nothing is left, and the next try may work."""

    def write(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as full:
        full.setattr(os, "write", write)
        with pytest.raises(DiskFull, match="no space left"):
            await put(blobs, b"x")
    assert files(tmp_path) == []
    assert blobs.drafted == 0
    await put(blobs, b"x")
