"""The harness itself: a disk that forgets what it may forget, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path, PurePath
from typing import Final

import pytest

from tests.crash.disk import TOP, Node, Write
from tests.crash.powercut import Cut, Recording, Unmodelled
from tests.crash.strace import Call, parse
from tests.programs import require

KEEP: Final = """
import os, sys
top = sys.argv[1]
directory = os.open(top, os.O_RDONLY)
witness = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
for number in range(20):
    draft, name = f"{top}/{number}.part", f"{top}/{number}"
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.write(file, b"%d;" % number * 600)
    os.write(file, b"end")
    SYNC_FILE
    os.close(file)
    os.rename(draft, name)
    SYNC_DIRECTORY
    os.write(witness, b"%d" % number)
"""
SYNC_FILE: Final = "os.fsync(file)"
SYNC_DIRECTORY: Final = "os.fsync(directory)"


def recorded(tmp_path: Path, program: str, *, inject: str | None = None) -> Recording:
    """Record a small program that is given a directory and a witness file."""
    require("strace")
    directory = tmp_path / "directory"
    directory.mkdir()
    recording = Recording(directory, tmp_path / "witness", without=["*.part"])
    arguments = [str(directory), str(tmp_path / "witness")]
    command = [sys.executable, "-c", program, *arguments]
    assert recording.run(command, tmp_path / "trace", inject=inject) == 0
    return recording


def kept(cut: Cut) -> bool:
    """Whether everything that the program spoke of is there and complete."""
    return all(
        cut.files.get(PurePath(number.decode())) == b"%s;" % number * 600 + b"end"
        for number in cut.said
    )


def test_what_is_synced_and_named_durably_is_kept(tmp_path: Path) -> None:
    """A file written, synced, renamed and its directory synced survives every power cut."""
    program = KEEP.replace("SYNC_FILE", SYNC_FILE).replace("SYNC_DIRECTORY", SYNC_DIRECTORY)
    cuts = list(recorded(tmp_path, program).cuts(500, seed=1))
    assert any(cut.said for cut in cuts)
    assert all(kept(cut) for cut in cuts)


@pytest.mark.parametrize("forgotten", ["SYNC_FILE", "SYNC_DIRECTORY"])
def test_what_is_not_synced_can_be_lost(tmp_path: Path, forgotten: str) -> None:
    """Without the sync of the file, or of its directory, some power cut takes it away."""
    program = KEEP.replace(forgotten, "pass")
    program = program.replace("SYNC_FILE", SYNC_FILE).replace("SYNC_DIRECTORY", SYNC_DIRECTORY)
    assert not all(kept(cut) for cut in recorded(tmp_path, program).cuts(500, seed=1))


def test_a_directory_is_kept_once_its_parent_is_synced(tmp_path: Path) -> None:
    """A file in a new directory needs its own name synced and that of the directory."""
    program = """
import os, sys
os.mkdir(sys.argv[1] + "/ab")
file = os.open(sys.argv[1] + "/ab/cd", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(file, b"some")
os.write(file, b"thing")
os.fsync(file)
for path in (sys.argv[1] + "/ab", sys.argv[1]):
    os.fsync(os.open(path, os.O_RDONLY))
"""
    recording = recorded(tmp_path, program)
    before = [c.files for c in recording.cuts(200, seed=1)]
    (after,) = recording.cuts(1, seed=1, first=len(recording.moments))
    assert {} in before
    assert after.files == {PurePath("ab/cd"): b"something"}


def test_what_the_model_does_not_know_is_refused(tmp_path: Path) -> None:
    """A program that changes its directory in a way that is not modelled stops the test."""
    program = "import os, sys; os.symlink('a', sys.argv[1] + '/b')"
    with pytest.raises(Unmodelled, match="symlink"):
        recorded(tmp_path, program)


def test_calls_of_several_threads_are_put_together() -> None:
    """A call that another thread interrupts in the trace keeps its own beginning and end."""
    trace = [
        '7 pwrite64(3</d/a>, "\\\\x41"..., 1, 9 <unfinished ...>',
        "8 fdatasync(3</d/a> <unfinished ...>",
        "7 <... pwrite64 resumed>) = 1",
        "--- SIGCHLD ---",
        "8 <... fdatasync resumed>) = -1 EIO (Input/output error) (INJECTED)",
        "9 fsync(4</d> <unfinished ...>",
    ]
    calls = sorted(parse(line.replace("\\\\", "\\") for line in trace), key=lambda c: c.began)
    assert [(c.name, c.began, c.ended, c.result) for c in calls] == [
        ("pwrite64", 0, 2, 1),
        ("fdatasync", 1, 4, -1),
        ("fsync", 5, None, None),
    ]
    assert calls[0].descriptor == (3, Path("/d/a"))
    assert calls[0].last_number == 9
    assert calls[1].failed
    assert not calls[2].failed


def test_a_sync_covers_only_what_had_returned_before_it_began(tmp_path: Path) -> None:
    """A write under way while a file is synced is as unsure as one that came later."""
    top = tmp_path / "top"
    top.mkdir()
    recording = Recording(top, tmp_path / "witness")

    def call(name: str, arguments: str, result: int, began: int, ended: int) -> Call:
        return Call(name, arguments, result, began, ended)

    file, quoted = f"3<{top}/a>", "".join(f"\\x{byte:02x}" for byte in bytes(top / "a"))
    recording.take_in(
        [
            call("openat", f'AT_FDCWD</>, "{quoted}", O_RDWR|O_CREAT', 3, 0, 0),
            call("openat", f'AT_FDCWD</>, "{quoted[:-8]}", O_RDONLY', 4, 1, 1),
            call("fsync", f"4<{top}>", 0, 2, 2),
            call("pwrite64", f'{file}, "\\x41", 1, 0', 1, 3, 5),
            call("fdatasync", file, 0, 4, 6),
        ]
    )
    contents = {
        c.files[PurePath("a")] for c in recording.cuts(100, seed=1, first=len(recording.moments))
    }
    assert contents == {b"", b"A"}


def test_a_descriptor_means_what_it_meant_when_the_call_began(tmp_path: Path) -> None:
    """A thread that waits to open a file may get the number that another has yet to sync."""
    directory = tmp_path / "directory"
    directory.mkdir()
    recording = Recording(directory, tmp_path / "witness")
    names = {name: _quoted(directory / name) for name in ("a", "b")}
    old, new = (f'AT_FDCWD</>, "{name}", O_RDWR|O_CREAT, 0600' for name in names.values())
    recording.take_in(
        [
            Call("openat", old, 7, 1, 1),
            Call("write", f'7<{directory}/a>, "\\x41"', 1, 2, 2),
            Call("openat", new, 7, 3, 6),  # begins while the other file is open
            Call("fsync", f"7<{directory}/a>", 0, 4, 5),
            Call("openat", f'AT_FDCWD</>, "{_quoted(directory)}", O_RDONLY', 8, 7, 7),
            Call("fsync", f"8<{directory}>", 0, 8, 8),
            Call("write", f'7<{directory}/b>, "\\x42"', 1, 9, 9),
        ]
    )
    last = len(recording.moments)
    found = [cut.files for cut in recording.cuts(50, seed=1, first=last)]
    assert {files[PurePath("a")] for files in found} == {b"A"}
    assert {files[PurePath("b")] for files in found} == {b"", b"B"}


@pytest.mark.parametrize(
    ("call", "arguments", "left"),
    [
        ("pwrite64", '"\\x4f\\x4c\\x44", 3, 0', b"old"),
        ("pwrite64", '"\\x4f\\x4c\\x44", 3, 0', b"Old"),
        ("pwrite64", '"\\x4f\\x4c\\x44", 3, 0', b"OLD"),
        ("ftruncate", "1", b"old"),
        ("ftruncate", "1", b"o"),
    ],
)
def test_what_a_program_died_in_is_what_it_has_left(
    tmp_path: Path, call: str, arguments: str, left: bytes
) -> None:
    """A write may have happened, in part or not at all; the next program's sync settles it."""
    top = tmp_path / "top"
    top.mkdir()
    recording = Recording(top, tmp_path / "witness")
    file = f"3<{top}/a>"
    opening = Call("openat", f'AT_FDCWD</>, "{_quoted(top / "a")}", O_RDWR|O_CREAT', 3, 0, 0)
    before = Call("write", f'{file}, "\\x6f\\x6c\\x64", 3', 3, 1, 1)
    (top / "a").write_bytes(left)
    recording.take_in([opening, before, Call(call, f"{file}, {arguments}", None, 2, None)])
    directory = Call("openat", f'AT_FDCWD</>, "{_quoted(top)}", O_RDONLY', 4, 1, 1)
    syncs = [Call("fsync", file, 0, 2, 2), Call("fsync", f"4<{top}>", 0, 3, 3)]
    recording.take_in([opening, directory, *syncs])
    cuts = recording.cuts(50, seed=1, first=len(recording.moments))
    assert {cut.files[PurePath("a")] for cut in cuts} == {left}


@pytest.mark.parametrize("happened", [False, True])
def test_what_a_program_died_in_has_happened_or_not(tmp_path: Path, happened: bool) -> None:
    """The next program finds a directory or makes it, and its sync settles the matter."""
    top = tmp_path / "top"
    top.mkdir()
    recording = Recording(top, tmp_path / "witness")
    path, file = (_quoted(top / name) for name in ("d", "d/f"))
    if happened:
        (top / "d").mkdir()
    recording.take_in([Call("mkdir", f'"{path}", 0700', None, 0, None)])
    made = [] if happened else [Call("mkdir", f'"{path}", 0700', 0, 0, 0)]
    recording.take_in(
        [
            *made,
            Call("openat", f'AT_FDCWD</>, "{file}", O_RDWR|O_CREAT', 3, 1, 1),
            Call("openat", f'AT_FDCWD</>, "{path}", O_RDONLY', 4, 2, 2),
            Call("fsync", f"4<{top}/d>", 0, 3, 3),
            Call("openat", f'AT_FDCWD</>, "{_quoted(top)}", O_RDONLY', 5, 4, 4),
            Call("fsync", f"5<{top}>", 0, 5, 5),
        ]
    )
    cuts = recording.cuts(50, seed=1, first=len(recording.moments))
    assert all(PurePath("d/f") in cut.files for cut in cuts)


def _quoted(path: Path) -> str:
    return "".join(f"\\x{byte:02x}" for byte in bytes(path))


def test_a_file_can_move_to_another_directory(tmp_path: Path) -> None:
    """It is kept once the directory it came to is synced; before that, either name or none."""
    program = """
import os, sys
os.mkdir(sys.argv[1] + "/old")
os.mkdir(sys.argv[1] + "/new")
file = os.open(sys.argv[1] + "/old/f", os.O_WRONLY | os.O_CREAT)
os.write(file, b"moved")
os.fsync(file)
for name in ("", "/old"):
    os.fsync(os.open(sys.argv[1] + name, os.O_RDONLY))
os.rename(sys.argv[1] + "/old/f", sys.argv[1] + "/new/f")
os.fsync(os.open(sys.argv[1] + "/new", os.O_RDONLY))
"""
    recording = recorded(tmp_path, program)
    seen = {frozenset(map(str, cut.files)) for cut in recording.cuts(500, seed=1)}
    assert {frozenset(), frozenset({"old/f"}), frozenset({"new/f"})} <= seen
    for after in recording.cuts(50, seed=1, first=len(recording.moments)):
        assert after.files[PurePath("new/f")] == b"moved"


def test_a_failed_sync_loses_what_it_was_to_keep(tmp_path: Path) -> None:
    """After a sync has failed, a later one that works brings nothing back (as on Linux)."""
    program = """
import os, sys
file = os.open(sys.argv[1] + "/a", os.O_WRONLY | os.O_CREAT)
os.fsync(os.open(sys.argv[1], os.O_RDONLY))
for digit in b"123":
    os.write(file, bytes([digit]) * 3000)
    try:
        os.fdatasync(file)
    except OSError:
        pass
"""
    recording = recorded(tmp_path, program, inject="fdatasync:error=EIO:when=2")
    (after,) = recording.cuts(1, seed=1, first=len(recording.moments))
    content = after.files[PurePath("a")]
    assert content.count(b"1") == content.count(b"3") == 3000
    assert content.count(b"2") < 3000


def test_a_write_is_torn_where_sectors_end() -> None:
    """Pieces of a write end at multiples of the sector size in the file."""
    write = Write(Node(1, is_directory=False), 1000, bytes(range(256)) * 5)
    pieces = list(write.sectors())
    assert [piece.offset for piece in pieces] == [1000, 1024, 1536, 2048]
    assert b"".join(piece.data for piece in pieces) == write.data
    assert TOP.is_directory
