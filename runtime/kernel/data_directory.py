"""The data directory: one log, and what is kept beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from perdure.runtime.kernel.settings import Settings

OWN_FILES: Final = frozenset({"log", "snapshots", "references"})  # that listings must not take
LOG_BACKUP: Final = "log.backup"  # what the log is called in a backup


class NotADataDirectory(Exception):
    """There is something else at this place, and a log is not for it."""

    def __init__(self, message: str, remedy: str) -> None:
        """Say what there is, and what to do."""
        super().__init__(message)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class DataDir:
    """Where the files of one log are. Only the log, the blobs and what is sealed are the truth.

    The others may be thrown away.
    """

    path: Path

    @classmethod
    def of(cls, settings: Settings) -> DataDir:
        """Give the directory that the settings name."""
        return cls(Path(settings.server.data_dir))

    @property
    def log(self) -> Path:
        """The log itself."""
        return (self.path / "log.db").resolve()

    def listing(self, name: str) -> Path:
        """Give the file of a listing."""
        return self.path / f"{name}.db"

    @property
    def snapshots(self) -> Path:
        """The cache of folded states."""
        return self.path / "snapshots.db"

    @property
    def references(self) -> Path:
        """Which blobs the log names."""
        return self.path / "references.db"

    @property
    def server(self) -> Path:
        """Where the server of the log can be reached, while there is one."""
        return self.path / "server.json"

    @property
    def backup(self) -> Path:
        """The log, if this is a backup."""
        return (self.path / LOG_BACKUP).resolve()

    @property
    def is_backup(self) -> bool:
        """Whether this is a backup, and not the directory of a log."""
        return self.backup.exists() and not self.log.exists()

    def check(self) -> None:
        """Refuse what is no place for a log: a file, or a backup."""
        if self.path.exists() and not self.path.is_dir():
            raise NotADataDirectory(
                f"{self.path} is no directory.", "Name one for the log, with --data-dir."
            )
        if self.is_backup:
            raise NotADataDirectory(
                f"{self.path} is a backup, and stays as it is.",
                f"`perdure log verify --data-dir {self.path}` checks it;"
                f" `perdure log restore {self.path} --data-dir DIR`\nmakes a log of it.",
            )

    def make(self) -> None:
        """Make the directory, if it is missing, for its owner alone."""
        self.check()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.mkdir(mode=0o700, exist_ok=True)
