"""Group commit: one batch at a time, and whatever arrives meanwhile is the next batch.

There is no timer. While the disk syncs one batch, appends gather; when it is done they go together.
A caller's append waits in the queue, where cancelling it is clean; from the moment its batch is
taken it can no longer be cancelled and is always answered, so that a caller's idea of the log never
differs from the log. An answer means that the records are on disk.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

import outcome
import trio

from perdure.eventlog.append import Append, Receipt
from perdure.eventlog.env import FaultPoint
from perdure.eventlog.errors import (
    DiskFull,
    EventLogError,
    LogClosed,
    OutcomeUnknown,
    Overloaded,
    ReadOnlyLog,
    StoreBusy,
    StoreConflict,
    StoreUnreadable,
    Unavailable,
)
from perdure.eventlog.ledger import Admitted, AppendRefused, Ledger, Repeated, Verdict
from perdure.eventlog.record import Mark

if TYPE_CHECKING:
    from perdure.eventlog.env import Env
    from perdure.eventlog.store import Store
    from perdure.eventlog.tail import Tail

ANSWERS_AT_ONCE: Final = 16  # a few milliseconds of work for those who are answered
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_log = logging.getLogger("perdure.log")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterLimits:
    """How much may wait and how much goes into one commit."""

    queued_appends: int = 4096  # new work is refused beyond this; 100 times a usual batch
    queued_bytes: int = 64 << 20
    batch_appends: int = 1024  # keeps a commit, and so every answer, within some 20 ms
    batch_bytes: int = 4 << 20


@dataclass(eq=False, slots=True)
class _Waiting:
    """An append and the task that waits for its answer."""

    append: Append
    size: int
    new_work: bool
    task: trio.lowlevel.Task
    raise_cancel: Callable[[], NoReturn] | None = None  # set when cancelled during the write


@dataclass(frozen=True, slots=True)
class _Written:
    """What became of a batch. ``head`` is set if the store knew more than the writer."""

    verdicts: Sequence[Verdict]
    head: Mark | None = None


class Writer:
    """The one task that writes to the log."""

    def __init__(
        self,
        env: Env,
        store: Store,
        tail: Tail,
        limits: WriterLimits | None = None,
    ) -> None:
        """Nothing runs until ``run`` does. What is on disk is shown in the tail."""
        self._env = env
        self._store = store
        self._tail = tail
        self._limits = limits or WriterLimits()
        self._thread = trio.CapacityLimiter(1)  # its own: plugins' threads never delay a commit
        self._ledger = Ledger(store, store.last_position())
        self._commit_time = store.commit_time()
        self._queue: OrderedDict[_Waiting, None] = OrderedDict()  # bounded by WriterLimits
        self._queued_bytes = 0
        self._work = trio.Event()
        self._closing = not store.writable
        self._gives_up = False
        self.stalled: Unavailable | None = None  # why nothing can be written, while that is so
        self.commits = 0

    async def append(self, append: Append, *, new_work: bool = False) -> Receipt:
        """Write an append; return when it is on disk.

        New work is refused while the queue or the disk is full; other appends wait.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._closing:
            raise (
                LogClosed("the log is closed")
                if self._store.writable
                else ReadOnlyLog("this process opened the log for reading")
            )
        if new_work:
            self.refuse_if_full()
        waiting = _Waiting(append, append.size, new_work, trio.lowlevel.current_task())
        self._enqueue(waiting)
        receipt: Receipt = await trio.lowlevel.wait_task_rescheduled(
            partial(self._give_up, waiting)
        )
        return receipt

    @trio.lowlevel.enable_ki_protection  # whoever waits is answered, whatever else happens
    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write batches until ``finish``. Raises OutcomeUnknown if the store fails."""
        task_status.started()
        pause = _FIRST_PAUSE
        try:
            while await self._more_to_do():
                await self._write_one_batch()
                if self.stalled is None:
                    pause = _FIRST_PAUSE
                    await self._let_others_in()
                elif self._queue:
                    await self._env.sleep(pause)
                    pause = min(pause * 2, _LONGEST_PAUSE)
        finally:
            self._closing = True
            self._answer_all()

    def finish(self) -> None:
        """Take no more appends; ``run`` returns when those that wait are written."""
        self._closing = True
        self._work.set()

    async def check_room(self) -> None:
        """See whether something could be written, also while there is nothing to write."""
        try:
            await self._env.run_sync(self._store.check_room, limiter=self._thread)
        except DiskFull as error:
            self._complain(error)
            self._work.set()  # so that ``run`` checks again until there is room
        except OSError:
            pass  # the next write says what is wrong
        else:
            if not self._queue:
                self._resume()

    def give_up_when_stalled(self) -> None:
        """Wait for better times no more: what cannot be written is refused, and no more is taken.

        What can be written still is. For a process that goes down and has nobody to wait for.
        """
        self._gives_up = True
        if self.stalled is not None:
            self._close_and_answer()

    def _close_and_answer(self) -> None:
        self.finish()
        self._answer_all()

    @property
    def queued(self) -> tuple[int, int]:
        """How many appends wait to be written, and how many bytes they have."""
        return len(self._queue), self._queued_bytes

    # Waiting

    def refuse_if_full(self) -> None:
        """Raise why new work would be refused, if it would."""
        if self.stalled is not None and self._queue:
            raise type(self.stalled)(*self.stalled.args)
        too_many = len(self._queue) >= self._limits.queued_appends
        if too_many or self._queued_bytes >= self._limits.queued_bytes:
            raise Overloaded(len(self._queue))

    def _enqueue(self, waiting: _Waiting) -> None:
        self._queue[waiting] = None
        self._queued_bytes += waiting.size
        self._work.set()

    def _give_up(
        self, waiting: _Waiting, raise_cancel: Callable[[], NoReturn]
    ) -> trio.lowlevel.Abort:
        """Cancel a waiting append, unless its write has started."""
        if waiting not in self._queue:
            waiting.raise_cancel = raise_cancel
            return trio.lowlevel.Abort.FAILED
        self._drop(waiting)
        return trio.lowlevel.Abort.SUCCEEDED

    def _drop(self, waiting: _Waiting) -> None:
        del self._queue[waiting]
        self._queued_bytes -= waiting.size

    def _put_back(self, again: Sequence[_Waiting]) -> None:
        """Let appends wait again that were not written; those cancelled meanwhile may go."""
        for waiting in reversed(again):
            if waiting.raise_cancel is not None:
                trio.lowlevel.reschedule(waiting.task, outcome.capture(waiting.raise_cancel))
            else:
                self._enqueue(waiting)
                self._queue.move_to_end(waiting, last=False)

    def _answer_all(self) -> None:
        for waiting in list(self._queue):
            self._drop(waiting)
            _answer(waiting, LogClosed("the log was closed before the append was written"))

    # Writing

    async def _more_to_do(self) -> bool:
        while not self._queue:
            if self._closing:
                return False
            self._work = trio.Event()
            if self.stalled is None:
                await self._work.wait()
                continue
            with trio.move_on_after(_LONGEST_PAUSE):
                await self._work.wait()
            if not self._queue:
                await self.check_room()
        return True

    async def _let_others_in(self) -> None:
        """Pass through the scheduler once: those just answered can join the next batch."""
        if self._env.faults is not None:
            await self._env.faults.reach(FaultPoint.WRITER_SETTLED)
        if self._store.needs_upkeep:
            await self._env.run_sync(self._store.upkeep, limiter=self._thread)
        else:
            await trio.lowlevel.checkpoint()

    async def _write_one_batch(self) -> None:
        batch = self._take()
        try:
            with trio.CancelScope(shield=True):
                if self._env.faults is not None:
                    await self._env.faults.reach(FaultPoint.WRITER_TAKE)
                written = await self._env.run_sync(self._write, batch, limiter=self._thread)
            self._show(written)
        except (DiskFull, StoreBusy) as exc:
            self._stall(batch, exc)
        except StoreUnreadable as exc:
            for waiting in batch:
                _answer(waiting, LogClosed(f"nothing was written: {exc}"))
            raise
        except BaseException as exc:
            reason = f"the store failed in the middle of a write: {exc!r}"
            for waiting in batch:
                _answer(waiting, OutcomeUnknown(reason))
            if isinstance(exc, Exception):
                raise OutcomeUnknown(reason) from exc
            raise
        else:
            self._resume()
            await self._settle(batch, written.verdicts)

    def _take(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        size = 0
        for waiting in self._queue:
            batch.append(waiting)
            size += waiting.size
            if len(batch) >= self._limits.batch_appends or size >= self._limits.batch_bytes:
                break
        for waiting in batch:
            self._drop(waiting)
        return batch

    def _write(self, batch: Sequence[_Waiting]) -> _Written:
        """In the writer's thread: judge, number, write, sync."""
        try:
            try:
                return _Written(self._admit_and_commit(batch))
            except StoreConflict:
                # The backstop knows better than the cache. Look everything up again, once.
                self._ledger.forget_everything(self._store.last_position())
                verdicts = self._admit_and_commit(batch)
                return _Written(verdicts, self._store.head())
        except BaseException:
            self._ledger.roll_back()
            raise

    def _admit(self, batch: Sequence[_Waiting]) -> list[Verdict]:
        try:
            self._commit_time = max(self._commit_time, self._env.now())
            return [self._ledger.admit(w.append, self._commit_time) for w in batch]
        except Exception as exc:
            raise StoreUnreadable(f"the store cannot be read: {exc!r}") from exc

    def _admit_and_commit(self, batch: Sequence[_Waiting]) -> Sequence[Verdict]:
        verdicts = self._admit(batch)
        records = [r for v in verdicts if isinstance(v, Admitted) for r in v.records]
        if records:
            if self._env.faults is not None:
                self._env.faults.strike(FaultPoint.WRITER_COMMIT)
            self._store.commit(records)
            self.commits += 1
            if self._env.faults is not None:
                self._env.faults.strike(FaultPoint.WRITER_COMMITTED)
        self._ledger.keep()
        return verdicts

    # Answering

    def _show(self, written: _Written) -> None:
        """Show followers what is on disk; if others wrote too, let them read it there."""
        if written.head is not None:
            self._tail.skip_to(written.head)
        else:
            verdicts = written.verdicts
            self._tail.extend([r for v in verdicts if isinstance(v, Admitted) for r in v.records])

    async def _settle(self, batch: Sequence[_Waiting], verdicts: Sequence[Verdict]) -> None:
        """Answer the callers, some at a time: what each does next takes the event loop's time.

        The next batch is taken when all are answered, so it is none the smaller for that.
        """
        again: list[_Waiting] = []
        for number, (waiting, verdict) in enumerate(zip(batch, verdicts, strict=True), 1):
            if isinstance(verdict, Admitted | Repeated):
                _answer(waiting, Receipt(verdict.records))
            elif isinstance(verdict, AppendRefused):
                _answer(waiting, verdict.error)
            else:
                again.append(waiting)
            if not number % ANSWERS_AT_ONCE:
                await trio.lowlevel.cancel_shielded_checkpoint()
        self._put_back(again)

    def _stall(self, batch: Sequence[_Waiting], error: Unavailable) -> None:
        """Nothing was written: new work is told so, accepted work waits for better times."""
        self._complain(error)
        for waiting in batch:
            if waiting.new_work:
                _answer(waiting, type(error)(*error.args))
        self._put_back([waiting for waiting in batch if not waiting.new_work])
        if self._gives_up:
            self._close_and_answer()

    def _complain(self, error: Unavailable) -> None:
        if self.stalled is None:
            _log.warning("nothing can be written: %s; accepted work waits", error)
        self.stalled = error

    def _resume(self) -> None:
        if self.stalled is not None:
            self.stalled = None
            _log.info("writing again")


def _answer(waiting: _Waiting, answer: Receipt | EventLogError) -> None:
    if isinstance(answer, EventLogError):
        trio.lowlevel.reschedule(waiting.task, outcome.Error(answer))
    else:
        trio.lowlevel.reschedule(waiting.task, outcome.Value(answer))
