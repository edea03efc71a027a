"""Which files a process sees: programs and libraries, its own code, empty folders to write into.

Everything else is not there. What is named more precisely wins: a folder inside of a hidden one
can be shown, one inside of a shown one hidden.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from perdure.runtime.process.guard.order import DEVICES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from perdure.runtime.plugins.plugin import Program
    from perdure.runtime.process.guard.order import Links, Places

SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/localtime", "/etc/timezone"),
    *("/etc/hosts", "/etc/resolv.conf", "/etc/host.conf", "/etc/gai.conf", "/etc/services"),
    *("/etc/protocols", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ca-certificates"),
    *("/etc/pki/tls/certs", "/etc/pki/ca-trust", "/etc/crypto-policies", "/etc/mime.types"),
    *("/etc/fonts", "/etc/os-release"),
)
SCRATCH: Final = ("/tmp", "/dev/shm")  # noqa: S108 - each process has its own
_PRECEDENCE: Final = ("scratch", "read", "write", "hidden")  # of what is said about one place


class FileView(NamedTuple):
    """What a process is shown, parents first, and links to where it is."""

    places: Places
    links: Links


class Missing(Exception):
    """A plugin asks for a place that cannot be shown. The message says which and what to do."""


def view_of(program: Program, command: Sequence[str], hidden: Iterable[Path]) -> FileView:
    """Give what a program sees that is started with a command."""
    places: dict[str, str] = {}
    links: Links = []

    def add(kind: str, path: str) -> None:
        real = os.path.realpath(path)
        if real == "/" or not (kind == "scratch" or Path(real).exists()):
            return
        if path != real:
            links.append((path, real))
        places[real] = max(places.get(real, kind), kind, key=_PRECEDENCE.index)

    secret = [os.path.realpath(path) for path in hidden]
    if program.folder is not None and os.path.realpath(program.folder) in secret:
        raise Missing("its folder is the data directory: keep them apart")
    for kind, path in _wanted(program, command, os.environ):
        add(kind, path)
    for kind, path in _asked_for(program, secret):
        add(kind, path)
    for path in secret:
        add("hidden", path)
    return FileView(list(_needed(places)), sorted(links))


def without_hiding(view: FileView) -> Places:
    """Give what of a view can be opened where nothing can be hidden: what lies beside it."""
    hidden = [path for kind, path in view.places if kind == "hidden"]
    shown = [(kind, path) for kind, path in view.places if kind in {"read", "write"}]
    parts = [part for kind, path in shown for part in _beside(kind, path, hidden)]
    roots = [os.path.realpath(entry) for entry in sys.path]  # of which maybe only modules are shown
    parts += [
        ("list", root) for root in roots if any(Path(root) in Path(p).parents for _, p in shown)
    ]
    return [*parts, ("read", "/proc"), *(("write", f"/dev/{name}") for name in DEVICES)]


def _beside(kind: str, path: str, hidden: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Give a place, or its names and those of its parts that are not hidden; not through links."""
    inside = [folder for folder in hidden if _holds(path, folder)]
    if not inside:
        yield kind, path
    elif path not in inside:
        yield "list", path
        for part in sorted(Path(path).iterdir()):
            if not part.is_symlink():
                yield from _beside(kind, str(part), inside)


def _needed(places: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Leave out what is shown with a folder above it, in the same way."""
    above: list[str] = []
    for path in sorted(places, key=lambda path: path.split("/")):  # what is inside comes next
        while above and not _holds(above[-1], path):
            above.pop()
        if not above or places[above[-1]] != places[path]:
            yield places[path], path
        above.append(path)


def _wanted(
    program: Program, command: Sequence[str], environ: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Name what every program needs, and what this one does."""
    for folder in (*SCRATCH, environ.get("HOME", "")):
        if folder.startswith("/"):
            yield "scratch", folder
    folders = [*SYSTEM, *environ.get("PATH", "").split(os.pathsep)]
    folders += _of_python() if program.home is not None else _of_program(command[0])
    folders += [str(Path(folder).absolute()) for folder in (program.folder, program.code) if folder]
    for folder in folders:
        if folder.startswith("/"):
            yield "read", folder


def _of_python() -> Iterator[str]:
    """Name where this interpreter and what it can import are, as far as it knows."""
    yield from {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    too_much = {"/", *SCRATCH, os.environ.get("HOME"), str(Path.cwd())}
    for entry in (Path(entry).absolute() for entry in sys.path):
        if str(entry) not in too_much:
            yield str(entry)
        else:  # somebody works there; what can be imported is shown, and nothing beside it
            yield from map(str, entry.glob("*.py"))
            yield from (str(file.parent) for file in entry.glob("*/__init__.py"))
    executable = Path(sys.executable)
    yield str(executable.parent)
    while executable.is_symlink():  # a virtual environment's leads to another, through some more
        executable = executable.parent / executable.readlink()
        yield str(executable.parent)


def _of_program(path: str) -> Iterator[str]:
    """Name where a program and its libraries are."""
    folder = Path(os.path.realpath(path)).parent
    yield str(folder)
    if folder.name == "bin":
        yield str(folder.parent / "lib")


def _asked_for(program: Program, secret: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Give the places that a plugin asks for, if they can be shown.

    Those inside of one that it may write are shown with it. They are not looked at: the plugin may
    have put links there, which lead anywhere.
    """
    writes = [os.path.realpath(path) for path in program.writes]
    for kind, paths in (("read", program.reads), ("write", program.writes)):
        for path in paths:
            above = [os.path.realpath(folder) for folder in Path(path).parents]
            if any(_holds(place, folder) for place in writes for folder in above):
                continue
            problem = _problem(kind, os.path.realpath(path), program.folder, secret)
            if problem:
                raise Missing(f"{kind}s names {path}, which {problem}")
            yield kind, path


def _problem(kind: str, place: str, folder: str | None, secret: Sequence[str]) -> str:
    """Tell why a place cannot be shown."""
    if not Path(place).exists():
        return "does not exist: create it, or leave it out"
    if place == "/":
        return "is everything: name folders inside"
    if any(_holds(hidden, place) for hidden in secret):
        return "belongs to the log: leave it out"
    if kind == "write" and folder is not None and _holds(place, os.path.realpath(folder)):
        return "holds the plugin itself: name a folder inside"
    return ""


def _holds(folder: str, path: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
