"""Snapshots of a scope: when one is kept, and what is made of it."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from perdure.actors import scope_actor
from perdure.actors.decider import Decider
from perdure.actors.scope_actor import LEAST_WEIGHT
from perdure.actors.scope_folding import fold_scope
from perdure.eventlog import MemorySnapshots, MemoryStore
from perdure.eventlog.errors import CodecError
from tests.actors.test_scopes import SESSION, STREAM, Note, Session, World, world


async def noted(w: World, times: int, size: int) -> None:
    """Let the session note something large, so often."""
    await w.neighbour(2)
    for _ in range(times):
        await w.actor.ask(Note("x" * size))
    await trio.testing.wait_all_tasks_blocked()


async def test_a_snapshot_is_kept_when_enough_was_folded(autojump_clock: MockClock) -> None:
    """Neither before so many bytes nor again right after."""
    snapshots = MemorySnapshots()
    store = MemoryStore()
    async with world(store, snapshots) as w:
        await noted(w, 10, LEAST_WEIGHT // 12)
        assert w.log.snapshots == []
        await noted(w, 4, LEAST_WEIGHT // 12)
        assert len(w.log.snapshots) == 1
        position, state = w.log.snapshots[0]
        live = await w.actor.look()
        assert live.snapshot == position
        assert live.snapshot_weight == len(state)
        assert live.weight < LEAST_WEIGHT
        successor = await w.make(STREAM).look()
        assert successor.state == live.state
        assert (successor.snapshot, successor.version) == (position, live.version)
        assert successor.weight == live.weight
    async with world(store, snapshots) as w:
        assert (await w.actor.look()).snapshot == position


async def test_a_large_state_is_kept_less_often(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new one only when the records since the last weigh as much as the state did then."""
    monkeypatch.setattr(scope_actor, "LEAST_WEIGHT", 10)
    frozen = SESSION.freeze_scope(1, Session())
    monkeypatch.setattr(Decider, "freeze_scope", lambda *_: frozen + b" " * 10_000)
    async with world() as w:
        await noted(w, 9, 1_000)
        assert len(w.log.snapshots) == 1
        assert (await w.actor.look()).snapshot_weight == len(frozen) + 10_000
        await noted(w, 2, 1_000)
        assert len(w.log.snapshots) == 2


async def test_a_state_that_cannot_be_kept_is_passed_over(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its actor goes on, and the next snapshot is tried when as much was folded again."""
    tries = []

    def failing(*_: object) -> bytes:
        tries.append(1)
        raise TypeError("not a state of ours") if len(tries) % 2 else CodecError("nor this")

    monkeypatch.setattr(Decider, "freeze_scope", failing)
    async with world() as w:
        await noted(w, 5, LEAST_WEIGHT // 4)
        await noted(w, 5, LEAST_WEIGHT // 4)
        assert (await w.actor.look()).state.notes == 11
        assert (len(tries), w.log.snapshots) == (2, [])


def test_a_large_state_can_be_read_back() -> None:
    """A session may know thousands of paths: more than a request may have bytes."""
    session = Session(seen=tuple(("a" * 100, n, n) for n in range(20_000)))
    frozen = SESSION.freeze_scope(3, session)
    assert len(frozen) > 2 << 20
    assert SESSION.thaw_scope(frozen) == (3, session)
    assert SESSION.thaw(SESSION.freeze(session)) == session


async def test_a_snapshot_that_cannot_be_read_is_passed_over(autojump_clock: MockClock) -> None:
    """It is a cache: the scope is folded from its beginning."""
    async with world() as w:
        record = await w.neighbour(2)
        for state in (b"\xff", SESSION.freeze(Session()), b"\x82\x01\x61x"):
            await w.log._log.save_scope_snapshot(
                STREAM, record.position, record.event_id, fold=SESSION.fold, state=state
            )
            folded = await fold_scope(w.log, SESSION, STREAM)
            assert folded is not None
            assert (folded.state.total, folded.snapshot) == (2, 0)


async def test_a_snapshot_ends_with_its_record(autojump_clock: MockClock) -> None:
    """Its state is used as it is, and only what came later is folded onto it."""
    async with world() as w:
        record = await w.neighbour(2)
        state = SESSION.freeze_scope(1, Session(total=50, notes=7))
        await w.log._log.save_scope_snapshot(
            STREAM, record.position, record.event_id, fold=SESSION.fold, state=state
        )
        later = await w.neighbour(1, "run/2")
        folded = await fold_scope(w.log, SESSION, STREAM)
        assert folded is not None
        assert (folded.state.total, folded.state.notes, folded.version) == (51, 7, 1)
        assert folded.mark == later.mark
        assert (folded.snapshot, folded.snapshot_weight) == (record.position, len(state))
        assert folded.weight == later.size


def test_freezing_keeps_the_version() -> None:
    """A state of a scope goes with the version of its own stream, and other bytes are refused."""
    session = Session(total=3, notes=1, seen=(("a", 1, 2),))
    assert SESSION.thaw_scope(SESSION.freeze_scope(4, session)) == (4, session)
    with pytest.raises(CodecError, match="session-1"):
        SESSION.thaw_scope(SESSION.freeze(session))
