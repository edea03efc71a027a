"""The disk of the simulated world: it outlives every process, and it fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.eventlog.env import FaultPoint
from perdure.eventlog.errors import DiskFull, StoreBusy, StoreConflict, StoreFailed
from perdure.eventlog.memory import MemoryStore
from perdure.eventlog.store import Bounds

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from perdure.eventlog.record import Record
    from perdure.eventlog.simulation import SimEnv
    from perdure.runtime.secrets.sealed_files import MemorySeals


class Disk(MemoryStore):
    """What survives every crash, and how it may fail."""

    def __init__(self, chance: random.Random) -> None:
        """Draw how bad this disk is; some are perfect."""
        super().__init__()
        self.chance = chance
        self.fails_before = chance.choice([0, 0, 0.02])
        self.fails_after = chance.choice([0, 0, 0.05])
        self.busy = chance.choice([0, 0, 0.1, 0.5])
        self.denies = chance.choice([0, 0, 0.05])  # says conflict after having written
        self.full = False

    def heal(self) -> None:
        """Fail no more."""
        self.fails_before = self.fails_after = self.busy = self.denies = 0
        self.full = False

    @property
    def records(self) -> list[Record]:
        """Everything that is durable."""
        return self.read_all(0, Bounds(records=1 << 30, bytes=1 << 40)).records


class DiskView(MemoryStore):
    """The disk as one process sees it: what the process does after its death has no effect."""

    def __init__(self, disk: Disk, env: SimEnv, *, writable: bool = True) -> None:
        """Share the disk's records."""
        super().__init__(disk.generation, writable=writable)
        self._records, self._streams, self._scopes = disk._records, disk._streams, disk._scopes
        self._disk = disk
        self._env = env

    def commit(self, records: Sequence[Record]) -> None:
        """Write, unless the disk or the process fails; or write and then fail."""
        disk, chance = self._disk, self._disk.chance
        self._env.faults.strike(FaultPoint.STORE_BEGIN)
        if disk.full:
            raise DiskFull("simulated")
        if chance.random() < disk.busy:
            raise StoreBusy("simulated")
        if chance.random() < disk.fails_before:
            raise StoreFailed("simulated, nothing written")
        super().commit(records)
        self._env.faults.strike(FaultPoint.STORE_END)
        if chance.random() < disk.fails_after:
            raise StoreFailed("simulated, but written")
        if chance.random() < disk.denies:
            raise StoreConflict("simulated, but written")


class SealsView:
    """The sealed secrets on the disk as one process sees them: it dies before, or after."""

    def __init__(self, seals: MemorySeals, env: SimEnv) -> None:
        """Share what is sealed."""
        self._seals = seals
        self._env = env
        self.key = seals.key
        self.get = seals.get
        self.run_ids = seals.run_ids

    def put(self, run_id: str, data: bytes) -> None:
        """Keep what was sealed for a run."""
        self._env.faults.strike(FaultPoint.STORE_BEGIN)
        self._seals.put(run_id, data)
        self._env.faults.strike(FaultPoint.STORE_END)

    def drop(self, run_id: str) -> None:
        """Forget what was sealed for a run."""
        self._env.faults.strike(FaultPoint.STORE_BEGIN)
        self._seals.drop(run_id)
        self._env.faults.strike(FaultPoint.STORE_END)
