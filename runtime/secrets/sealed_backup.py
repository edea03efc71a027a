"""Sealed secrets in a backup: those that runs which have not ended need, and their key.

    <backup>/sealed/<run id>    a seal, as a data directory has it
    <backup>/sealed.sha256      the hash of each, as ``sha256sum --check`` reads it
    <backup>/seal.key           the key, unless it was to be left out

A seal goes when its run ends, and in a backup that run may not have ended. So what is there is
taken before the log is copied, and what its copy does not name is thrown away afterwards. A seal
that came and went in between is not there, and nothing is wrong: the log tells that its run has
ended. Everything here blocks and is called in a thread.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from perdure.actors.run.events import RUN_EVENTS, RunCreated
from perdure.actors.run.stream import stream_of
from perdure.eventlog.errors import LogUnsupported, UnreadableRecord
from perdure.eventlog.sqlite.file import sync_directory
from perdure.eventlog.store import Bounds
from perdure.eventlog.verify import Problems
from perdure.runtime.secrets.encryption import unsealed
from perdure.runtime.secrets.sealed_files import KEY_FILE, SEALED_FOLDER, SealFolder, write_whole
from perdure.runtime.secrets.secret import has_sealed

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from perdure.eventlog.store import Store

HASHES: Final = "sealed.sha256"
_MISSING: Final = "is missing"
_NO_KEY: Final = f"cannot be opened: {KEY_FILE} is missing"
_CLOSED: Final = f"does not open: the file is damaged, or {KEY_FILE} is not its key"


@dataclass(slots=True)
class SealReport(Problems):
    """Which seals the log names, and what is wrong with them."""

    seals: int = 0
    has_key: bool = False

    def note_run(self, run_id: str, problem: str) -> None:
        """Take in a problem with the seal of a run."""
        self.note([f"the sealed secret of run {run_id} {problem}"])


def runs_with_seals(store: Store) -> list[str]:
    """Give the runs that have not ended and need what was sealed for them, in their order."""
    found: dict[str, str] = {}
    position, more = 0, True
    while more:
        page = store.read_all(position, Bounds(pass_damage=True))
        for record in page.records:
            position = record.position
            if record.name == RunCreated.event_name:
                created: RunCreated = RUN_EVENTS.decode(record)
                if has_sealed(created.args):
                    found[record.stream] = created.run_id
            if record.seal:
                found.pop(record.stream, None)
        more = page.more
    return list(found.values())


def verify_seals(store: Store, seals: SealFolder) -> SealReport:
    """Open every seal that a log names, and report what is missing or damaged."""
    key = seals.existing_key()
    report = SealReport(has_key=key is not None)
    for run_id in runs_with_seals(store):
        data = seals.get(run_id)
        if data is None and has_ended(store, run_id):
            continue  # while this was looking
        _is_good(report, run_id, data, key)
    return report


class SealsToBackUp:
    """The seals of a data directory, on their way into a backup."""

    def __init__(self, source: SealFolder, target: Path) -> None:
        """Touch nothing."""
        self._source = source
        self._target = target
        self._copies = SealFolder(target)

    def collect(self) -> None:
        """Copy all that there is, before the log is copied."""
        for run_id in self._source.present():
            data = self._source.get(run_id)
            if data is not None:
                self._copies.put(run_id, data)

    def complete(self, named: Store, now: Store, *, with_key: bool) -> SealReport:
        """Keep what the copy of the log names, and add the key; ``now`` is the log itself."""
        key = self._source.existing_key()
        report = SealReport(has_key=with_key and key is not None)
        hashes: dict[str, str] = {}
        for run_id in runs_with_seals(named):
            data = self._copy_of(run_id)
            if data is None and has_ended(now, run_id):
                continue
            good = _is_good(report, run_id, data, key)
            if data is not None and (good or key is None):  # a key that is found opens it again
                hashes[run_id] = sha256(data).hexdigest()
        self._forget_all_but(hashes)
        if hashes:
            lines = (f"{digest}  {SEALED_FOLDER}/{run_id}\n" for run_id, digest in hashes.items())
            write_whole(self._target / HASHES, "".join(lines).encode("ascii"))
        if report.has_key and key is not None:
            self._copies.keep_key(key)
        return report

    def _forget_all_but(self, kept: Collection[str]) -> None:
        """Drop what the copy of the log does not name, durably: no power cut brings it back."""
        surplus = [run_id for run_id in self._copies.present() if run_id not in kept]
        for run_id in surplus:
            self._copies.drop(run_id)
        if surplus:
            sync_directory(self._target / SEALED_FOLDER)

    def _copy_of(self, run_id: str) -> bytes | None:
        """Give the copy of a seal, and make it if it came while the log was copied."""
        data = self._copies.get(run_id)
        if data is None:
            data = self._source.get(run_id)
            if data is not None:
                self._copies.put(run_id, data)
        return data


class SealsToRestore:
    """The seals of a backup, on their way into a data directory."""

    def __init__(self, backup: Path, data_dir: Path) -> None:
        """Refuse what would be overwritten, before anything is written."""
        self._source = SealFolder(backup)
        self._target = SealFolder(data_dir)
        self._hashes = _read_hashes(backup / HASHES)
        brought, there = self._source.existing_key(), self._target.existing_key()
        if brought is not None and there is not None and brought != there:
            raise _would_overwrite(data_dir / KEY_FILE)
        for run_id in self._target.present():
            if self._source.get(run_id) not in {None, self._target.get(run_id)}:
                raise _would_overwrite(data_dir / SEALED_FOLDER / run_id)
        self._key = brought or there
        self._has_key_already = there is not None

    def restore(self, named: Store) -> SealReport:
        """Bring back the seals that the backup's log names, and then the key.

        Without the key they are brought back too, and open for whoever puts it beside them.
        """
        report = SealReport(has_key=self._key is not None)
        for run_id in runs_with_seals(named):
            data = self._source.get(run_id)
            if data is not None and self._is_changed(run_id, data):
                report.note_run(run_id, "is damaged: its hash is not the one it had")
            elif data is not None and self._key is None:
                report.seals += 1
                self._target.put(run_id, data)
            elif _is_good(report, run_id, data, self._key) and data is not None:
                self._target.put(run_id, data)
        if self._key is not None and not self._has_key_already:
            self._target.keep_key(self._key)
        return report

    def _is_changed(self, run_id: str, data: bytes) -> bool:
        digest = sha256(data).hexdigest()
        return self._hashes.get(run_id, digest) != digest


def has_ended(store: Store, run_id: str) -> bool:
    """Tell whether the last event of a run is in the log."""
    with suppress(UnreadableRecord):
        return store.stream_state(stream_of(run_id)).sealed
    return False


def _is_good(report: SealReport, run_id: str, data: bytes | None, key: bytes | None) -> bool:
    """Count a seal that opens, or note what is wrong with it."""
    if data is None:
        report.note_run(run_id, _MISSING)
    elif key is None:
        report.note_run(run_id, _NO_KEY)
    elif unsealed(key, run_id, data) is None:
        report.note_run(run_id, _CLOSED)
    else:
        report.seals += 1
        return True
    return False


def _read_hashes(path: Path) -> dict[str, str]:
    """Read the hashes of seals by the ids of their runs."""
    try:
        lines = path.read_text("ascii", errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    pairs = (line.split(f"  {SEALED_FOLDER}/", 1) for line in lines)
    return {pair[1]: pair[0] for pair in pairs if len(pair) > 1}


def _would_overwrite(path: Path) -> LogUnsupported:
    return LogUnsupported(
        f"{path} is another one than the backup's and is never overwritten;"
        " restore into another directory"
    )
