"""Room on the disk that a log keeps, to be opened when the disk is full."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from perdure.eventlog import DiskFull, RealEnv, SqliteStore
from perdure.eventlog.sqlite.reserve import RESERVE, ROOM


def reserve_of(path: Path) -> Path:
    """The file of the reserve."""
    return path.with_name("log.db.reserve")


def test_a_log_gives_its_reserve_back_while_it_opens(tmp_path: Path) -> None:
    """When all is open it is taken again, and when the log is closed it is there for the next."""
    path = tmp_path / "log.db"
    for _ in range(2):
        store = SqliteStore.open(path, env=RealEnv())
        assert not reserve_of(path).exists()
        store.check_room()
        assert reserve_of(path).stat().st_size == RESERVE
        reserve_of(path).unlink()
        store.close()
        assert reserve_of(path).stat().st_size == RESERVE


@pytest.mark.parametrize("room", [0, RESERVE // 2, RESERVE, RESERVE + ROOM - 1])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_is_full_unless_there_is_room_beside_the_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, number: int
) -> None:
    """As much of the reserve as there is stays taken, so that what is refused stays refused."""
    path, pwrite = tmp_path / "log.db", os.pwrite
    store = SqliteStore.open(path, env=RealEnv())

    def write_if_there_is_room(descriptor: int, data: bytes, offset: int) -> int:
        if offset >= room:
            raise OSError(number, "no room")
        return pwrite(descriptor, data[: room - offset], offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", write_if_there_is_room)
        with pytest.raises(DiskFull):
            store.check_room()
        assert reserve_of(path).stat().st_size == min(room, RESERVE)
    store.check_room()
    assert reserve_of(path).stat().st_size == RESERVE
    store.close()
