"""`perdure doctor`: checks whether this machine is fit to hold a log."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from perdure.runtime.kernel.terminal.command import Command, common
from perdure.runtime.kernel.terminal.invocation import ExitCode, Invocation, pass_invocation
from perdure.runtime.kernel.terminal.text import Cell, Column, instant, size, table
from perdure.runtime.kernel.variables import URL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from perdure.eventlog.sqlite import SqliteStore
    from perdure.runtime.kernel.data_directory import DataDir
    from perdure.runtime.kernel.features import Features

FSYNCS: Final = 16
_BLOCK: Final = b"perdure " * 512  # a page
_SLOW: Final = 0.05  # seconds for an fsync, above which every commit is slow
_TOO_FAST: Final = 0.00001  # faster than any disk
_LITTLE: Final = 1 << 30
_TOO_LITTLE: Final = 64 << 20
_BEGINNING: Final = 1_700_000_000  # seconds; a clock before this has not been set
_SKEW: Final = 1.0  # seconds that the log may be ahead of the clock


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its result, and a remedy if there is a problem."""

    name: str
    status: str  # ok, warn, fail
    value: str
    remedy: str = ""


@click.command(
    cls=Command,
    short_help="Check log, disk, clock and sandbox.",
    examples=["perdure doctor", "perdure doctor --json"],
)
@common
@pass_invocation
def doctor(invocation: Invocation) -> None:
    """Check the log, the disk, the clock, and what the system offers to isolate processes.

    The command changes nothing; it writes a small temporary file beside the log. A check that
    cannot be carried out has failed. Exit code 1: a check failed.
    """
    if os.environ.get(URL):
        invocation.note(f"{URL} is not asked: these are checks of this machine and its log.")
    checks = list(_checks(invocation))
    if invocation.json:
        invocation.give({"checks": [asdict(check) for check in checks]})
    else:
        columns = (Column("CHECK"), Column(""), Column("FOUND", wraps=True))
        rows = [(c.name, Cell(c.status, c.status), c.value) for c in checks]
        invocation.lines(table(columns, rows, invocation.width))
        remedies = [c for c in checks if c.status != "ok" and c.remedy]
        invocation.lines([""] * bool(remedies))
        for check in remedies:
            invocation.say(f"{check.name}: {check.remedy}")
    if any(check.status == "fail" for check in checks):
        raise click.exceptions.Exit(ExitCode.FAILED)


def _checks(invocation: Invocation) -> Iterator[Check]:
    """Carry out all checks; what breaks one of them is a finding, and the next follows."""
    yield from _guarded("versions", _versions)
    settings = list(_guarded("settings", partial(_settings, invocation)))
    yield from settings
    if not settings:
        data = invocation.place
        for name, look in (
            ("data directory", _directory),
            ("log", _log),
            ("events", partial(_events, invocation.features)),
            ("writer", _writer),
            ("disk space", _space),
            ("fsync", _fsync),
            ("clock", _clock),
        ):
            yield from _guarded(name, partial(look, data))
    yield from _guarded("sandbox", _sandbox)


def _guarded(name: str, look: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    try:
        yield from look()
    except Exception as error:  # noqa: BLE001 - whatever is wrong with the machine is a finding
        yield Check(name, "fail", str(error) or type(error).__name__, _remedy(error))


def _remedy(error: Exception) -> str:
    told: str | None = getattr(error, "remedy", None)
    if told:
        return told
    if isinstance(error, PermissionError):
        return "Run this as the owner of the file, or let yourself read it (chown, chmod)."
    if isinstance(error, OSError):
        return "Look at what lies there, and at the disk."
    return "Report this as a fault of Perdure, with the output of `perdure doctor --json`."


def _settings(invocation: Invocation) -> Iterator[Check]:
    """Read the settings; there is nothing to tell unless that fails."""
    _ = invocation.settings
    return iter(())


def _versions() -> Iterator[Check]:
    import platform
    import sqlite3
    from importlib.metadata import version

    yield Check("perdure", "ok", version("perdure"))
    yield Check("python", "ok", f"{platform.python_version()} on {platform.system()}")
    yield Check("sqlite", "ok", sqlite3.sqlite_version)


def _log(data: DataDir) -> Iterator[Check]:
    from perdure.eventlog.errors import EventLogError
    from perdure.eventlog.sqlite.schema import SCHEMA_VERSION

    if not data.log.exists():
        yield Check("log", "ok", "none yet; the first run creates it")
        return
    try:
        with _opened(data) as store:
            head, last = store.head().position, store.last_position()
    except (EventLogError, OSError) as error:
        yield Check("log", "fail", str(error), "Keep the file; restore a backup elsewhere.")
        return
    found = f"format {SCHEMA_VERSION}, {head:,} records, {size(data.log.stat().st_size)}"
    if head < last:
        remedy = "`perdure log verify` lists the damage; restore a backup elsewhere."
        yield Check("log", "fail", f"{found}; it had {last:,} before", remedy)
    else:
        yield Check("log", "ok", f"{found}; `perdure log verify` checks every record")


def _opened(data: DataDir) -> AbstractContextManager[SqliteStore]:
    from contextlib import closing

    from perdure.eventlog.sqlite import SqliteStore

    return closing(SqliteStore.open_reader(data.log))


def _events(features: Features, data: DataDir) -> Iterator[Check]:
    """Look for a newer release among the newest records."""
    from perdure.eventlog.errors import EventLogError
    from perdure.eventlog.store import PAGE_RECORDS, Bounds

    if not data.log.exists():
        return
    with suppress(EventLogError, OSError), _opened(data) as store:  # the check of the log tells
        first = max(0, store.head().position - PAGE_RECORDS)
        newest = store.read_all(first, Bounds(pass_damage=True)).records
        names = sorted({record.name for record in newest if not features.know(record)})
        if names:
            told = f"a newer release has written to this log: {', '.join(names[:5])}"
            yield Check("events", "fail", told, "Upgrade Perdure to that release.")


def _writer(data: DataDir) -> Iterator[Check]:
    from perdure.eventlog.sqlite.lock import holder_of

    if not data.log.exists():
        return
    holder = holder_of(data.log)
    if holder is None:
        yield Check("writer", "ok", "nobody")
    else:
        yield Check(
            "writer", "ok", f"process {holder.pid}" if holder.known else "unknown on this system"
        )


def _directory(data: DataDir) -> Iterator[Check]:
    """Check that the data directory is one, and that only the owner can read it."""
    data.check()
    path = data.path.absolute()
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        told = f"{path} can be read by others (mode {mode:o})"
        yield Check("data directory", "warn", told, f"It holds the data of runs: chmod 700 {path}")
    else:
        yield Check("data directory", "ok", str(path))


def _space(data: DataDir) -> Iterator[Check]:
    import shutil

    free = shutil.disk_usage(_existing(data.path)).free
    status = "fail" if free < _TOO_LITTLE else "warn" if free < _LITTLE else "ok"
    yield Check("disk space", status, f"{size(free)} free", "Delete files before the disk is full.")


def _fsync(data: DataDir) -> Iterator[Check]:
    try:
        times = sorted(_fsyncs(_existing(data.path)))
    except OSError as error:
        remedy = "The log needs a directory that is writable."
        yield Check("fsync", "fail", str(error), remedy)
        return
    median, worst = times[len(times) // 2], times[-1]
    told = f"{median * 1000:.2f} ms, at worst {worst * 1000:.2f} ms"
    if median > _SLOW:
        yield Check("fsync", "warn", told, "Every commit waits for fsync: use a faster disk.")
    elif median < _TOO_FAST:
        yield Check("fsync", "warn", told, "This is memory, not a disk: a log here will not last.")
    else:
        yield Check("fsync", "ok", told)


def _existing(path: Path) -> Path:
    """Return the directory, or its nearest parent that exists."""
    path = path.absolute()
    while not path.is_dir():
        path = path.parent
    return path


def _fsyncs(place: Path) -> Iterator[float]:
    """Measure how long it takes until a page is on disk."""
    import tempfile

    from perdure.eventlog import clock
    from perdure.eventlog.units import NANOSECONDS

    with tempfile.NamedTemporaryFile(dir=place, prefix=".perdure-doctor-") as file:
        for _ in range(FSYNCS):
            file.write(_BLOCK)
            file.flush()
            begun = clock.ticks()
            os.fsync(file.fileno())
            yield (clock.ticks() - begun) / NANOSECONDS


def _clock(data: DataDir) -> Iterator[Check]:
    from perdure.eventlog import clock
    from perdure.eventlog.units import NANOSECONDS

    now = clock.wall() / NANOSECONDS
    told = instant(now)
    ahead = _newest(data) - now
    if now < _BEGINNING:
        yield Check("clock", "fail", told, "The clock has not been set.")
    elif ahead > _SKEW:
        remedy = "The clock was set back. New records get the time of the last one until then."
        yield Check("clock", "warn", f"{told}; the log is {ahead:.0f} s ahead", remedy)
    else:
        yield Check("clock", "ok", told)


def _newest(data: DataDir) -> float:
    """Return the time of the newest record in epoch seconds."""
    from perdure.eventlog.errors import EventLogError
    from perdure.eventlog.units import NANOSECONDS

    with suppress(EventLogError, OSError), _opened(data) as store:
        return store.commit_time() / NANOSECONDS
    return 0.0


def _sandbox() -> Iterator[Check]:
    """Check what is enforced for processes here, by trying."""
    from perdure.runtime.process.sandbox_features import features

    for promised in features().guarantees():
        yield Check(
            f"sandbox: {promised.name}",
            "ok" if promised.is_enforced else "warn",
            promised.promise if promised.is_enforced else promised.gap,
            f"To enforce it, {promised.remedy}.",
        )
