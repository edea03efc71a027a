"""Planted bugs. Each is a mistake somebody could make; the simulation must find every one."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

from perdure.eventlog.append import Append
from perdure.eventlog.env import FaultPoint
from perdure.eventlog.errors import StoreFailed, WrongExpectedVersion
from perdure.eventlog.follow import Follow
from perdure.eventlog.ledger import Admitted, Ledger
from perdure.eventlog.writer import Writer, _answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import trio

    from perdure.eventlog.writer import _Waiting, _Written


async def answer_before_commit(self: Writer) -> None:
    """Tell the callers first, then write."""
    batch = self._take()
    verdicts = [self._ledger.admit(waiting.append, self._env.now()) for waiting in batch]
    self._ledger.keep()
    await self._settle(batch, verdicts)
    records = [r for v in verdicts if isinstance(v, Admitted) for r in v.records]
    await self._env.run_sync(self._store.commit, records, limiter=self._thread)
    self._tail.extend(records)


async def wait_on_a_newer_signal(self: Follow, _: trio.Event) -> None:
    """Take the signal after looking: a commit in between wakes nobody."""
    if self._source.env.faults is not None:
        await self._source.env.faults.reach(FaultPoint.FOLLOW_WAIT)
    await self._source.tail.wait(self._source.tail.signal)


_real_write = Writer._write


def write_again_blindly(self: Writer, batch: Sequence[_Waiting]) -> _Written:
    """Take every failed commit for one that wrote nothing, and write on top of what is there."""
    try:
        return _real_write(self, batch)
    except StoreFailed:
        self._ledger.forget_everything(self._store.head().position)
        again = [replace(waiting, append=self_on_top(self, waiting.append)) for waiting in batch]
        return _real_write(self, again)


def self_on_top(writer: Writer, append: Append) -> Append:
    """Expect whatever version the streams have now."""
    return Append(
        [
            replace(write, expected=writer._store.stream_state(write.stream).version)
            for write in append.writes
        ],
        append.unmoved,
    )


_real_take = Writer._take


def refuse_at_once(self: Writer) -> list[_Waiting]:
    """Answer a conflict within the batch before the batch is on disk."""
    taken: set[str] = set()
    kept: list[_Waiting] = []
    for waiting in _real_take(self):
        clash = [write for write in waiting.append.writes if write.stream in taken]
        if clash:
            error = WrongExpectedVersion(clash[0].stream, clash[0].expected, clash[0].expected + 1)
            _answer(waiting, error)
        else:
            kept.append(waiting)
            taken.update(write.stream for write in waiting.append.writes)
    return kept


def keep_a_failed_batch(_: Ledger) -> None:
    """Forget to take back the versions of a batch that was not written."""


MUTANTS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "answer-before-commit": (Writer, "_write_one_batch", answer_before_commit),
    "lost-wake-up": (Follow, "_wait", wait_on_a_newer_signal),
    "blind-retry": (Writer, "_write", write_again_blindly),
    "conflict-before-its-cause": (Writer, "_take", refuse_at_once),
    "failed-batch-kept": (Ledger, "roll_back", keep_a_failed_batch),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant a bug for the length of a block."""
    owner, attribute, bug = MUTANTS[name]
    with mock.patch.object(owner, attribute, bug):
        yield
