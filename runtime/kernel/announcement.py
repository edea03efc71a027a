"""Where the server of a data directory can be reached, for commands that find its log held.

It is a file beside the log, for the owner alone. A server that crashed leaves it behind; so it is
believed only if the process that it names holds the log.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

    from perdure.runtime.kernel.data_directory import DataDir


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """A server, as it announces itself."""

    pid: int
    url: str
    certificate: str | None = None  # the file with its certificate, if it speaks TLS


def announce(data: DataDir, announcement: Announcement) -> bool:
    """Announce a server; tell whether that was possible, as it is not on a full disk."""
    path = data.server
    temporary = path.with_name(f"{path.name}.{announcement.pid}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(msgspec.json.encode(announcement))
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        return False
    return True


def withdraw(data: DataDir, announcement: Announcement) -> None:
    """Take an announcement back, if it is the one that is there."""
    if _read(data.server) == announcement:
        data.server.unlink(missing_ok=True)


def find_server(data: DataDir) -> Announcement | None:
    """Give the server that holds a log, if it is one and has announced itself."""
    from perdure.eventlog.sqlite.lock import holder_of  # noqa: PLC0415 - commands start quickly

    announcement, holder = _read(data.server), holder_of(data.log)
    if announcement is None or holder is None or holder.pid != announcement.pid:
        return None
    return announcement


def _read(path: Path) -> Announcement | None:
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(path.read_bytes(), type=Announcement)
    return None
