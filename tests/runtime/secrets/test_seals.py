from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from trio.testing import MockClock

from perdure.eventlog.env import RealEnv
from perdure.runtime.secrets import encryption as sealing
from perdure.runtime.secrets.references import MAX_BYTES, SecretNotFound, SecretSource
from perdure.runtime.secrets.sealed_files import (
    KEY_BYTES,
    MemorySeals,
    SealFolder,
    Seals,
    SecretsUnusable,
)
from perdure.runtime.secrets.vault import Vault
from tests.eventlog.conftest import SteadyEnv


@pytest.fixture(params=["memory", "folder"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Seals:
    """A place for seals of each kind."""
    return MemorySeals() if request.param == "memory" else SealFolder(tmp_path)


def mode(path: Path) -> int:
    """Who may do what with a file."""
    return stat.S_IMODE(path.stat().st_mode)


async def test_what_was_sealed_opens_until_it_is_dropped(
    kept: Seals, autojump_clock: MockClock
) -> None:
    """Whoever has the key opens it, also in another life; nothing of it can be read without."""
    await Vault(SteadyEnv(), kept).seal("run-1", {"token": "canary-value", "n": 5})
    again = Vault(SteadyEnv(), kept)
    assert await again.open("run-1") == {"token": "canary-value", "n": 5}
    assert b"canary-value" not in (kept.get("run-1") or b"")
    assert await again.run_ids() == ["run-1"]
    await again.drop("run-1")
    await again.drop("run-1")
    assert await again.open("run-1") == {}
    assert await again.run_ids() == []


async def test_a_seal_opens_for_its_run_only(kept: Seals, autojump_clock: MockClock) -> None:
    """Copied under another name, damaged, or of another key, it is as good as gone."""
    vault = Vault(SteadyEnv(), kept)
    await vault.seal("run-1", {"token": "canary-value"})
    data = kept.get("run-1") or b""
    kept.put("run-2", data)
    kept.put("run-3", data[:-1] + bytes([data[-1] ^ 1]))
    kept.put("run-4", data[:20])
    kept.put("run-5", b"something else")
    for name in ("run-2", "run-3", "run-4", "run-5"):
        assert await vault.open(name) == {}
    other = MemorySeals()
    other.key(lambda count: b"k" * count)
    other.put("run-1", data)
    assert await Vault(SteadyEnv(), other).open("run-1") == {}


async def test_equal_secrets_are_sealed_differently(autojump_clock: MockClock) -> None:
    """Nobody can tell that two runs have the same secret."""
    kept = MemorySeals()
    vault = Vault(RealEnv(), kept)
    await vault.seal("run-1", {"token": "canary-value"})
    first = kept.sealed["run-1"]
    await vault.seal("run-1", {"token": "canary-value"})
    assert kept.sealed["run-1"] != first


async def test_hashing_and_sealing_have_keys_of_their_own(autojump_clock: MockClock) -> None:
    """And neither is the one in the file."""
    kept = MemorySeals()
    vault = Vault(SteadyEnv(), kept)
    used: list[bytes] = []
    with mock.patch("cryptography.hazmat.primitives.ciphers.aead.AESGCM", used.append):
        sealing._aes(kept.key(lambda count: b"k" * count))
    assert len({*used, await vault.hash_key(), kept.key(bytes)}) == 3


def test_the_files_are_their_owners_alone(tmp_path: Path) -> None:
    """Whatever the umask says."""
    before = os.umask(0)
    try:
        folder = SealFolder(tmp_path)
        key = folder.key(os.urandom)
        folder.put("run-1", b"data")
    finally:
        os.umask(before)
    assert len(key) == KEY_BYTES
    assert SealFolder(tmp_path).key(bytes) == key
    assert mode(tmp_path / "seal.key") == 0o600
    assert mode(tmp_path / "sealed") == 0o700
    assert mode(tmp_path / "sealed" / "run-1") == 0o600


@pytest.mark.parametrize("others", [0o604, 0o640, 0o620])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, others: int) -> None:
    """The message names the file and the remedy."""
    SealFolder(tmp_path).key(os.urandom)
    (tmp_path / "seal.key").chmod(others)
    with pytest.raises(SecretsUnusable, match=r"seal.key .*chmod 600"):
        SealFolder(tmp_path)


def test_a_key_of_another_length_is_refused(tmp_path: Path) -> None:
    """It is not made anew, since what it has sealed could not be opened any more."""
    path = tmp_path / "seal.key"
    path.touch(mode=0o600)
    with pytest.raises(SecretsUnusable, match="0 bytes, not 32"):
        SealFolder(tmp_path)
    path.unlink()
    path.mkdir(mode=0o700)
    with pytest.raises(SecretsUnusable, match="cannot be used"):
        SealFolder(tmp_path)


def test_a_seal_is_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data and directory are synced, in this order; a failure leaves nothing half-written."""
    calls: list[str] = []
    real_sync, real_rename = os.fsync, Path.rename

    def fsync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        calls.append("sync folder" if is_folder else "sync file")
        real_sync(descriptor)

    def rename(self: Path, target: Path) -> Path:
        calls.append("rename")
        return real_rename(self, target)

    folder = SealFolder(tmp_path)
    folder.put("run-0", b"data")
    monkeypatch.setattr("perdure.runtime.secrets.sealed_files.os.fsync", fsync)
    monkeypatch.setattr(Path, "rename", rename)
    folder.put("run-1", b"data")
    assert calls == ["sync file", "rename", "sync folder"]

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("perdure.runtime.secrets.sealed_files.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        folder.put("run-2", b"data")
    assert folder.run_ids() == ["run-0", "run-1"]
    assert len(list((tmp_path / "sealed").iterdir())) == 2


def test_a_name_that_is_found_is_synced_before_anything_is_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever made the key or the folder may have died before its name was durable."""
    first = SealFolder(tmp_path)
    key = first.key(os.urandom)
    first.put("run-0", b"data")
    synced: list[Path] = []
    monkeypatch.setattr("perdure.runtime.secrets.sealed_files.sync_directory", synced.append)
    folder = SealFolder(tmp_path)
    assert synced == []
    assert folder.key(os.urandom) == key
    assert synced == [tmp_path]
    folder.put("run-1", b"data")
    assert synced == [tmp_path, tmp_path, tmp_path / "sealed"]
    folder.key(os.urandom)
    folder.put("run-2", b"data")
    assert synced[3:] == [tmp_path / "sealed"]


def test_a_name_that_cannot_be_synced_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later sync would claim what this one could not do."""

    def fails(_: Path) -> None:
        raise OSError(5, "Input/output error")

    folder = SealFolder(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr("perdure.runtime.secrets.sealed_files.sync_directory", fails)
        with pytest.raises(OSError, match="Input/output"):
            folder.key(os.urandom)
    assert list(tmp_path.iterdir()) == []
    folder.key(os.urandom)


def test_no_second_key_is_made_where_seals_of_the_first_lie(tmp_path: Path) -> None:
    """Nothing starts: a lost key is put back, or its seals are given up by somebody who knows."""
    folder = SealFolder(tmp_path)
    folder.key(os.urandom)
    folder.check()
    folder.put("run-1", b"data")
    (tmp_path / "seal.key").unlink()
    for refused in (folder.check, lambda: folder.key(os.urandom)):
        with pytest.raises(SecretsUnusable, match=r"seal.key is missing, and 1 .*put it back"):
            refused()
    folder.drop("run-1")
    folder.check()
    folder.key(os.urandom)


@pytest.mark.parametrize("name", ["../run", "a/b", "", ".", "RUN", "run.new"])
def test_only_ids_of_runs_name_files(tmp_path: Path, name: str) -> None:
    """A log that somebody else has made leads nowhere else."""
    folder = SealFolder(tmp_path / "data")
    for use in (folder.get, folder.drop, lambda name: folder.put(name, b"data")):
        with pytest.raises(ValueError, match="cannot be the id of a run"):
            use(name)
    assert list(tmp_path.iterdir()) == []


def test_what_was_never_finished_is_cleared_away(tmp_path: Path) -> None:
    """A process that died while it wrote leaves a file under another name."""
    folder = SealFolder(tmp_path)
    assert folder.run_ids() == []
    folder.put("run-1", b"data")
    (tmp_path / "sealed" / "run-2.new").write_bytes(b"da")
    assert folder.run_ids() == ["run-1"]
    assert not (tmp_path / "sealed" / "run-2.new").exists()
    (tmp_path / "sealed" / "run-1.new").write_bytes(b"da")
    folder.put("run-1", b"more")
    assert folder.get("run-1") == b"more"


# Where references lead


def test_a_reference_leads_to_a_variable_or_a_file(tmp_path: Path) -> None:
    """The variable comes first; the newline that editors add is not part of a secret."""
    secret = tmp_path / "git-hub.com"
    secret.write_text("from a file\n", "utf-8")
    secret.chmod(0o600)
    assert SecretSource({}, tmp_path).find("git-hub.com", "t") == "from a file"
    variables = {"PERDURE_SECRET_GIT_HUB_COM": "from a variable"}
    assert SecretSource(variables, tmp_path).find("git-hub.com", "t") == "from a variable"


def broken(path: Path) -> Any:
    """Files that are no secrets, by what is said of them."""
    (path / "open").write_text("x", "utf-8")
    (path / "open").chmod(0o644)
    (path / "folder").mkdir(mode=0o700)
    (path / "latin").write_bytes(b"\xff")
    (path / "empty").touch()
    (path / "large").write_bytes(b"x" * (MAX_BYTES + 1))
    for name in ("latin", "empty", "large"):
        (path / name).chmod(0o600)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("open", "others can read open .*chmod 600"),
        ("folder", "is not a file|Is a directory"),
        ("latin", "not UTF-8"),
        ("empty", "set PERDURE_SECRET_EMPTY, or put it into the file secrets/empty"),
        ("large", "more than"),
        ("none", "there is no secret 'none'"),
        ("../open", "no name of a secret"),
        (".hidden", "no name of a secret"),
        ("a/b", "no name of a secret"),
        ("", "no name of a secret"),
        ("a\n", "no name of a secret"),
    ],
)
def test_a_reference_that_leads_nowhere_says_why(tmp_path: Path, name: str, said: str) -> None:
    """By its name, and with what to do about it."""
    broken(tmp_path)
    with pytest.raises(SecretNotFound, match=said):
        SecretSource({}, tmp_path).find(name, "t")


def test_without_a_folder_only_variables_are_looked_at() -> None:
    """As in memory."""
    with pytest.raises(SecretNotFound, match=r"set PERDURE_SECRET_X$"):
        SecretSource().find("x", "t")
