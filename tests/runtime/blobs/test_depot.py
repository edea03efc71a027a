"""Where blobs are kept: on disk and in memory alike, and what a death on the way leaves behind."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import perdure.eventlog.sqlite.file
import perdure.runtime.blobs.file_depot
from perdure.runtime.blobs.blob import Blob, blob_at, blob_path, mentions
from perdure.runtime.blobs.depot import Depot, MemoryDepot
from perdure.runtime.blobs.file_depot import FileDepot

SCOPE = "0192-run"
DATA = b"some bytes" * 1000


def blob_of(data: bytes, scope: str = SCOPE) -> Blob:
    """The address that bytes get."""
    return Blob(scope, sha256(data).hexdigest())


def put(depot: Depot, data: bytes, draft_id: str = "draft", *, now: int = 1) -> Blob:
    """Write a blob."""
    draft = depot.begin(draft_id)
    try:
        draft.write(data[:7])
        draft.write(memoryview(data)[7:])
        blob = Blob(SCOPE, draft.sha256)
        draft.publish(blob, now)
    finally:
        draft.discard()
    return blob


def content(depot: Depot, blob: Blob) -> bytes:
    """Read a blob."""
    opened = depot.open(blob)
    try:
        return opened.read(0, opened.size)
    finally:
        opened.close()


@pytest.fixture(params=["files", "memory"])
def depot(request: pytest.FixtureRequest, tmp_path: Path) -> Depot:
    """Each kind of depot."""
    return FileDepot(tmp_path) if request.param == "files" else MemoryDepot()


def test_a_blob_is_what_was_written(depot: Depot) -> None:
    """It has its hash as its name, its size, and the time it was written at."""
    blob = put(depot, DATA, now=5)
    assert blob == blob_of(DATA)
    assert content(depot, blob) == DATA
    assert depot.scopes() == [SCOPE]
    assert depot.stored(SCOPE) == [(blob, len(DATA), 5)]
    opened = depot.open(blob)
    assert opened.read(3, 4) == DATA[3:7]
    assert opened.read(opened.size - 1, 10) == DATA[-1:]
    assert opened.read(opened.size, 10) == b""
    depot.remove(blob)
    assert opened.read(0, 4) == DATA[:4]  # open, so still readable
    opened.close()


def test_a_draft_is_no_blob(depot: Depot) -> None:
    """Until it is published there is nothing, and when it is thrown away nothing is left."""
    draft = depot.begin("draft")
    draft.write(DATA)
    assert depot.scopes() == []
    draft.discard()
    draft.discard()
    assert depot.clean_up() == 0
    with pytest.raises(FileNotFoundError):
        depot.open(blob_of(DATA))


def test_a_blob_can_be_renewed_and_removed(depot: Depot) -> None:
    """Renewing tells whether there is one; removing what is not there is no mistake."""
    blob = put(depot, DATA, now=5)
    assert depot.renew(blob, None, 9)
    assert depot.renew(blob, len(DATA), 9)
    assert [stored.renewed_at for stored in depot.stored(SCOPE)] == [9]
    depot.remove(blob)
    depot.remove(blob)
    assert not depot.renew(blob, None, 10)
    assert depot.scopes() == []
    assert put(depot, DATA) == blob


def test_the_files_have_the_layout_that_is_documented(tmp_path: Path) -> None:
    """One file for each blob, two letters of its hash as a directory, readable to us only."""
    blob = put(FileDepot(tmp_path), DATA)
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    digest = blob.sha256
    assert file == tmp_path / "scopes" / SCOPE / "sha256" / digest[:2] / digest[2:]
    assert [path.stat().st_mode & 0o077 for path in tmp_path.rglob("*")] == [0] * 6


def test_a_file_of_another_size_is_not_taken_for_the_blob(tmp_path: Path) -> None:
    """What the disk has cut off is replaced when the same bytes come again."""
    depot = FileDepot(tmp_path)
    blob = put(depot, DATA)
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    os.truncate(file, 10)
    assert not depot.renew(blob, len(DATA), 9)
    put(depot, DATA)
    assert content(depot, blob) == DATA


def test_strange_files_are_passed_over(tmp_path: Path) -> None:
    """Whatever else lies among the blobs is neither listed nor touched."""
    depot = FileDepot(tmp_path)
    blob = put(depot, DATA)
    top = tmp_path / "scopes"
    for path in ("README", f"{SCOPE}/sha256/zz/file", f"{SCOPE}/sha256/file", "UPPER/sha256/ab/c"):
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text("mine")
    assert depot.scopes() == [SCOPE]
    assert [stored.blob for stored in depot.stored(SCOPE)] == [blob]
    depot.remove(blob)
    assert (top / "README").read_text() == "mine"


HOSTILE = ["", "..", ".", "../../etc", "/etc", "a/b", "a\0b", "A", "a" * 65, ".drafts", "ä", "-a"]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_hostile_name_becomes_a_file_name(tmp_path: Path, name: str) -> None:
    """Only our own ids name directories, and only hashes name files."""
    (tmp_path / "data").mkdir()
    depot = FileDepot(tmp_path / "data")
    for blob in (Blob(name, "a" * 64), Blob(SCOPE, name), Blob(SCOPE, f"{name}/" + "a" * 64)):
        assert blob_at(blob.url) is None
        draft = depot.begin("draft")
        for act in (
            lambda blob=blob: depot.open(blob),
            lambda blob=blob: depot.remove(blob),
            lambda blob=blob: depot.renew(blob, None, 1),
            lambda blob=blob, draft=draft: draft.publish(blob, 1),
        ):
            with pytest.raises(ValueError, match="cannot be a blob"):
                act()
        draft.discard()
        assert depot.stored(blob.scope) == []
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files == []


def test_an_address_is_found_wherever_it_is_mentioned() -> None:
    """In any event, at any depth; what only looks like one is none."""
    one, two = blob_of(b"1"), blob_of(b"2")
    body = f"x{one.url} y{two.url}z perdure:blob/A/{one.sha256} perdure:blob/a/bc".encode()
    assert list(mentions(body, "0192-own")) == [one, two]
    path = blob_path(two.scope, two.sha256)
    body = f"[{path}] /runs/A/blobs/{one.sha256}".encode()
    assert list(mentions(body, two.scope)) == [two]
    assert list(mentions(body, "0192-session")) == [two, Blob("0192-session", two.sha256)]
    assert blob_at(one.url) == one
    assert blob_at(one.url + "0") is None


class Dying:
    """The operating system of a process that dies before its n-th call, or whose disk fails."""

    def __init__(self, calls: int, how: Callable[[], BaseException], *, once: bool = False) -> None:
        """Let so many calls through; one that fails once lets closing through, and what follows."""
        self.left = calls
        self._how = how
        self._once = once

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name.startswith("O_") or not callable(real):
            return real

        def call(*args: Any, **more: Any) -> Any:
            if self._once and name == "close":
                return real(*args, **more)
            if self.left == 0:
                self.left = -1 if self._once else 0
                raise self._how()
            self.left -= 1
            return real(*args, **more)

        return call


class Died(BaseException):
    """The process is gone: nothing that it would do takes effect."""


def use(monkeypatch: pytest.MonkeyPatch, dying: Dying) -> None:
    """Put an operating system under the depot."""
    for module in (perdure.runtime.blobs.file_depot, perdure.eventlog.sqlite.file):
        monkeypatch.setattr(module, "os", dying)
    for name in ("mkdir", "rename", "unlink", "stat"):
        call, real = getattr(dying, name), getattr(Path, name)
        monkeypatch.setattr(Path, name, _through(call, name, real))


def _through(call: Callable[..., Any], name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Path, *args: Any, **more: Any) -> Any:
        if name == "mkdir" and more.pop("exist_ok", False) and os.path.isdir(self):  # noqa: PTH112
            return None
        if name == "unlink" and more.pop("missing_ok", False) and not os.path.exists(self):  # noqa: PTH110
            return None
        return call(self, *args, **more)

    return method


def test_a_blob_is_there_in_full_or_not_at_all_wherever_its_writer_dies(tmp_path: Path) -> None:
    """Killed between any two calls of a write, it leaves a draft at most, which start-up removes.

    Whoever comes next writes the same blob, or finds it, and makes its name durable.
    """
    calls, seen = 0, set()
    while True:
        data_dir = tmp_path / str(calls)
        data_dir.mkdir()
        with pytest.MonkeyPatch.context() as monkeypatch:
            use(monkeypatch, Dying(calls, Died))
            try:
                put(FileDepot(data_dir), DATA)
                died = False
            except Died:
                died = True
        depot = FileDepot(data_dir)
        drafts = depot.clean_up()
        found = depot.stored(SCOPE)
        seen.add((drafts, len(found)))
        assert all(content(depot, stored.blob) == DATA for stored in found)
        assert not [p for p in (data_dir / "scopes" / ".drafts").glob("*") if p.is_file()]
        assert depot.renew(blob_of(DATA), len(DATA), 3) == bool(found)
        assert content(depot, put(depot, DATA)) == DATA
        if not died:
            break
        calls += 1
    assert calls > 20
    assert seen == {(0, 0), (1, 0), (0, 1)}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_anywhere_leaves_no_half_blob(tmp_path: Path, code: int) -> None:
    """An error at any call of a write is raised, and what was written so far is gone."""
    calls = 0
    while (error := _error_of_a_write(tmp_path / str(calls), calls, code)) is not None:
        assert error.errno == code
        calls += 1
    assert calls > 15


def _error_of_a_write(data_dir: Path, calls: int, code: int) -> OSError | None:
    """Write a blob to a disk that fails once; look at what is left, and write it again."""
    data_dir.mkdir()
    depot, error = FileDepot(data_dir), None
    with pytest.MonkeyPatch.context() as monkeypatch:
        use(monkeypatch, Dying(calls, lambda: OSError(code, "injected"), once=True))
        try:
            put(depot, DATA)
        except OSError as raised:
            error = raised
    assert bool(depot.stored(SCOPE)) == (error is None)
    assert depot.clean_up() == 0
    assert content(depot, put(depot, DATA)) == DATA
    return error


def test_a_directory_that_a_dead_process_made_is_synced_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows whether its maker lived to sync it; once this process has, it knows."""
    put(FileDepot(tmp_path), DATA)
    synced: list[str] = []

    def sync(directory: Path) -> None:
        synced.append(directory.relative_to(tmp_path).as_posix())

    monkeypatch.setattr(perdure.runtime.blobs.file_depot, "sync_directory", sync)
    depot, digest = FileDepot(tmp_path), blob_of(DATA).sha256
    place = f"scopes/{SCOPE}/sha256/{digest[:2]}"
    assert depot.renew(blob_of(DATA), None, 2)
    assert synced == [".", "scopes", f"scopes/{SCOPE}", f"scopes/{SCOPE}/sha256", place]
    assert depot.renew(blob_of(DATA), None, 3)
    assert synced[5:] == [place]


@pytest.mark.parametrize("planted", ["link", "dangling link", "pipe", "directory"])
def test_only_a_regular_file_is_a_blob(tmp_path: Path, planted: str) -> None:
    """What was planted under a blob's name is not followed, listed or renewed, but replaced."""
    depot, secret = FileDepot(tmp_path), tmp_path / "secret"
    secret.write_bytes(DATA)
    blob = put(depot, DATA)
    path = tmp_path / "scopes" / SCOPE / "sha256" / blob.sha256[:2] / blob.sha256[2:]
    path.unlink()
    match planted:
        case "pipe":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case _:
            path.symlink_to(secret if planted == "link" else tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        depot.open(blob)
    assert not depot.stored(SCOPE)
    assert not depot.renew(blob, len(DATA), 2)
    assert not depot.renew(blob, None, 2)
    if planted != "directory":
        assert content(depot, put(depot, DATA, "again")) == DATA
        assert not path.is_symlink()
    assert secret.read_bytes() == DATA
