"""The data directory: one log, and what is kept beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runtime.settings import Settings


@dataclass(frozen=True, slots=True)
class DataDir:
    """Where the files of one log are. Only the log, the blobs and what is sealed are the truth.

    The others may be thrown away.
    """

    path: Path

    @classmethod
    def of(cls, settings: Settings) -> DataDir:
        """Give the directory that the settings name."""
        return cls(Path(settings.data_dir))

    @property
    def log(self) -> Path:
        """The log itself."""
        return (self.path / "log.db").resolve()

    @property
    def directory(self) -> Path:
        """The directory of runs."""
        return self.path / "runs.db"

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

    def make(self) -> None:
        """Make the directory, if it is missing, for its owner alone."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.mkdir(mode=0o700, exist_ok=True)
