"""Collection: what nobody names is removed, and nothing is removed under somebody's hands."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from perdure.eventlog.simulation import Dead, SimEnv, simulate
from perdure.runtime.blobs.blob import Blob
from perdure.runtime.blobs.depot import MemoryDepot
from perdure.runtime.blobs.file_depot import FileDepot
from perdure.runtime.blobs.store import CHUNK, BlobLimits, BlobStore
from perdure.runtime.kernel.errors import OperationError
from tests.eventlog.conftest import SteadyEnv
from tests.runtime.blobs.test_blobs import HOUR, SCOPE, put, read
from tests.runtime.service import refused


class Logs:
    """What a log would name."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.named: set[Blob] = set()

    async def __call__(self, scope: str) -> set[Blob]:
        """Tell what is named now."""
        await trio.lowlevel.checkpoint()
        return {blob for blob in self.named if blob.scope == scope}


async def test_collecting_makes_room(autojump_clock: MockClock, env: SteadyEnv) -> None:
    """What was removed counts no more."""
    limits = BlobLimits(quota=100, scope_quota=100, grace=HOUR)
    blobs = BlobStore(env, limits=limits)
    await put(blobs, bytes(100))
    await refused("QUOTA_EXCEEDED", lambda: put(blobs, b"x"))
    await env.sleep(2 * HOUR)
    assert await blobs.collect(Logs()) == (1, 100)
    await put(blobs, b"y" * 100)


async def test_only_what_is_old_and_not_named_is_collected(
    autojump_clock: MockClock, env: SteadyEnv, tmp_path: Path
) -> None:
    """Named, young or renewed: each alone keeps a blob."""
    blobs = BlobStore(env, FileDepot(tmp_path), limits=BlobLimits(grace=HOUR))
    logs = Logs()
    named, old, renewed = [await put(blobs, name) for name in (b"named", b"old", b"renewed")]
    logs.named.add(named)
    assert await blobs.collect(logs) == (0, 0)
    await env.sleep(2 * HOUR)
    young = await put(blobs, b"young")
    async with blobs.hold(renewed):
        pass
    assert await blobs.collect(logs) == (1, 3)
    assert [await read(blobs, blob) for blob in (named, renewed, young)]
    await refused("BLOB_NOT_FOUND", lambda: read(blobs, old))
    with pytest.raises(OperationError, match="BLOB_NOT_FOUND"):
        async with blobs.hold(old):
            raise AssertionError


async def test_a_blob_that_is_held_is_not_collected_however_old(
    autojump_clock: MockClock, env: SteadyEnv
) -> None:
    """A log that takes long to write an event, on a full disk for example, loses no blob."""
    blobs = BlobStore(env, limits=BlobLimits(grace=1))
    async with blobs.draft(SCOPE) as draft:
        await draft.write(b"x")
        blob = await draft.publish()
        async with blobs.hold(blob):
            pass
        await env.sleep(HOUR)
        assert await blobs.collect(Logs()) == (0, 0)
    assert await blobs.collect(Logs()) == (1, 1)


def race(seed: int, store: type[BlobStore] = BlobStore) -> list[str]:
    """Let writers name blobs while collectors remove what they can; say what went wrong."""

    async def main(chance: random.Random) -> list[str]:
        env = SimEnv(chance)
        blobs = store(env, MemoryDepot(), limits=BlobLimits(grace=0.01))
        logs = Logs()
        wrong: list[str] = []

        async def write() -> None:
            for _ in range(10):
                await env.sleep(chance.choice([0, 0.01, 0.1, 1]))
                async with blobs.draft(SCOPE) as draft:
                    await draft.write(chance.choice([b"a", b"b"]))
                    blob = await draft.publish()
                    await env.sleep(chance.choice([0, 0.01, 1]))
                    logs.named.add(blob)  # this is the append
                try:
                    await read(blobs, blob)
                except OperationError as error:
                    wrong.append(str(error))
                await env.sleep(chance.choice([0, 0.01]))
                logs.named.discard(blob)  # so that there is something to collect

        async def collect() -> None:
            for _ in range(40):
                await env.sleep(chance.choice([0, 0.01, 0.1]))
                removed.append((await blobs.collect(logs)).blobs)

        removed: list[int] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            nursery.start_soon(collect)
            nursery.start_soon(collect)
        assert sum(removed), "nothing was collected: this proves nothing"
        return wrong

    return simulate(seed, main)


@pytest.mark.parametrize("seed", range(30))
def test_no_interleaving_takes_a_blob_from_under_its_writer(seed: int) -> None:
    """Between "it is there" and "I name it" no collector removes it, in any order of events."""
    assert race(seed) == []


class WithoutLock(BlobStore):
    """A store whose writers and collectors do not exclude each other."""

    def lock(self, scope: str) -> trio.Lock:
        """Give a lock that nobody else has."""
        return trio.Lock()


class WithoutHold(BlobStore):
    """A store that relies on the grace period alone."""

    def take_hold(self, blob: Blob) -> None:
        """Hold nothing."""

    def let_go(self, blob: Blob) -> None:
        """Let go of nothing."""


@pytest.mark.parametrize("store", [WithoutLock, WithoutHold])
def test_a_store_that_does_not_exclude_collection_is_found_out(store: type[BlobStore]) -> None:
    """The race above finds what it is there to find."""
    assert any(race(seed, store) for seed in range(30))


def test_a_process_that_dies_while_it_writes_holds_nothing_up() -> None:
    """Killed anywhere in a write, in virtual time; the next one finds the blob or writes it."""

    async def main(chance: random.Random) -> None:
        depot = MemoryDepot()
        for delay in (0.0, 0.001, 0.005, 0.1, 0.2):
            env = SimEnv(chance)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_write_until_dead, BlobStore(env, depot))
                await trio.sleep(delay)
                env.kill()
            assert all(s.size == 2 * CHUNK for s in depot.stored(SCOPE))
        blob = await put(BlobStore(SimEnv(chance), depot), bytes(2 * CHUNK))
        assert len(depot.stored(SCOPE)) == 1
        assert blob.scope == SCOPE

    for seed in range(10):
        simulate(seed, main)


async def _write_until_dead(blobs: BlobStore) -> None:
    with suppress(Dead):
        await put(blobs, bytes(2 * CHUNK))
