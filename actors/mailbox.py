"""The mailbox: one actor, one stream, and one task at work on it at a time.

Whoever asks an idle actor does its work. Whoever finds it busy waits in line, and a task sees to
the line: it takes all asks that wait, decides each on the state folded so far, folds what follows,
and appends once. Only then are the askers answered: what they hear is on disk. Between the append's
return and the answers there is no checkpoint, and whoever took an ask settles it, whatever happens.

An idle actor is nothing but its state. It can be dropped at any moment, and the next ask folds it
again from the log.

Folding comes before writing, so an ``evolve`` that fails leaves the log untouched. A conflict means
that the log knows more than the actor: fold again, decide again.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import trio

from perdure.actors.ask import Ask
from perdure.actors.errors import Crashed, Crowded, NoSuchActor, Refusal
from perdure.actors.folded import Folded
from perdure.actors.folding import Streams, fold_rest, fold_stream
from perdure.eventlog.append import Append, StreamWrite, Unmoved
from perdure.eventlog.errors import (
    CodecError,
    Conflict,
    EventLogError,
    InvalidAppend,
    LogClosed,
    OutcomeUnknown,
    UnreadableRecord,
)
from perdure.eventlog.record import encoded_metadata

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from perdure.actors.decider import Decider
    from perdure.eventlog.append import Receipt
    from perdure.eventlog.record import NewEvent, Record

State = TypeVar("State")
Command = TypeVar("Command")
Event = TypeVar("Event")

MAX_MAIL: Final = 256  # asks that may wait for one actor; an actor answers in milliseconds
BATCH: Final = 64
TRIES: Final = 5
SNAPSHOT_EVERY: Final = 500  # events; so many are folded in a few milliseconds


class ActorLog(Streams, Protocol):
    """What an actor needs of the log."""

    async def append(self, append: Append, *, new_work: bool = False) -> Receipt:
        """Write records; return when they are on disk."""

    async def save_snapshot(
        self, stream: str, version: int, event_id: bytes, *, fold: str, state: bytes
    ) -> None:
        """Keep what a fold makes of a stream up to a version."""


class Actor(Generic[State, Command, Event]):
    """One stream, its folded state and its queue of commands."""

    __slots__ = (
        "_aged",
        "_busy",
        "_decider",
        "_log",
        "_mail",
        "_new_id",
        "_on_change",
        "_on_crash",
        "_start",
        "folded",
        "stream",
    )

    def __init__(
        self,
        decider: Decider[State, Command, Event],
        stream: str,
        *,
        log: ActorLog,
        new_id: Callable[[], bytes],
        start: Callable[[Callable[[], Awaitable[None]]], None],
        on_change: Callable[[Folded[State]], None] = lambda _: None,
        on_crash: Callable[[str, Exception], None] = lambda _stream, _error: None,
        folded: Folded[State] | None = None,
    ) -> None:
        """Nothing is read before the first ask, and nothing at all if ``folded`` is known already.

        ``start`` runs a task, or raises LogClosed when no more tasks are run. ``on_change`` hears
        of each append, before the askers.
        """
        self.stream = stream
        self.folded = folded
        self._decider = decider
        self._log = log
        self._new_id = new_id
        self._start = start
        self._on_change = on_change
        self._on_crash = on_crash
        self._mail: deque[Ask[State, Command]] | None = None  # bounded by MAX_MAIL
        self._busy = False
        self._aged = False

    async def ask(
        self,
        command: Command,
        *,
        principal: str | None = None,
        also: Sequence[StreamWrite] = (),
        new_work: bool = False,
    ) -> Folded[State]:
        """Send a command; return the state after it, once that is on disk.

        ``also`` are writes to streams that this very append creates, or that have no actor.
        Cancelled before its append has begun, an ask leaves no trace; after that it is done.
        """
        return await self._do(Ask(command, principal, also, new_work))

    async def look(self) -> Folded[State]:
        """Give the state as it is on disk, after everything that was asked before."""
        folded = self.folded
        if folded is not None and not self._busy and self._knows_all:
            self._aged = False  # nothing was asked that is not done
            await trio.lowlevel.checkpoint_if_cancelled()
            return folded
        return await self._do(Ask(None, None, (), new_work=False))

    @property
    def is_idle(self) -> bool:
        """Whether nobody is at work on it, so that it may be dropped."""
        return not self._busy

    def has_been_idle(self) -> bool:
        """Tell whether nobody has asked anything since this question was last put."""
        was_idle, self._aged = self._aged, not self._busy
        return was_idle and self._aged

    # Asking

    async def _do(self, ask: Ask[State, Command]) -> Folded[State]:
        await trio.lowlevel.checkpoint_if_cancelled()
        self._aged = False
        if self._busy:
            return await self._wait_in_line(ask)
        self._busy = True
        try:
            await self._work([ask])
        finally:
            self._rest()
        return ask.result

    async def _wait_in_line(self, ask: Ask[State, Command]) -> Folded[State]:
        if self._mail is None:
            self._mail = deque()
        if len(self._mail) >= MAX_MAIL:
            raise Crowded(len(self._mail))
        ask.answered = trio.Event()
        self._mail.append(ask)
        try:
            await ask.answered.wait()
        except trio.Cancelled:
            if self._mail and ask in self._mail:
                self._mail.remove(ask)
            raise
        return ask.result

    # Working

    def _rest(self) -> None:
        """Be idle, unless something is left to do: then a task sees to it."""
        if not self._mail and not self._snapshot_is_due():
            self._busy = False
            return
        try:
            self._start(self._work_off)
        except LogClosed as closed:
            self._abandon(closed)

    async def _work_off(self) -> None:
        """Work until nothing is left to do."""
        try:
            while True:
                if self._snapshot_is_due():
                    await self._keep_a_snapshot()
                elif self._mail:
                    await self._work(self._take(self._mail))
                else:
                    break
        finally:
            self._abandon(LogClosed("this process is going down"))

    def _abandon(self, reason: LogClosed) -> None:
        """Leave nobody waiting."""
        while self._mail:
            self._mail.popleft().settle(reason)
        self._mail = None
        self._busy = False

    async def _work(self, asks: list[Ask[State, Command]]) -> None:
        """Do what is asked and answer everybody, whatever happens."""
        try:
            if self.folded is None or not self._knows_all:
                self.folded = await self._fold()
            await self._handle(asks)
        except CodecError as error:
            self._crash(asks, error)  # what is stored cannot be read
        except OutcomeUnknown as error:
            self.folded = None  # whether it was written is not known, so nothing is
            _settle_all(asks, error)
        except (NoSuchActor, EventLogError) as error:
            _settle_all(asks, error)  # nothing is wrong with the actor
        except Exception as error:  # noqa: BLE001 - the edge of an actor: it touches nobody else
            self._crash(asks, error)
        finally:
            _settle_all(asks, LogClosed("this process is going down"))

    def _crash(self, asks: list[Ask[State, Command]], error: Exception) -> None:
        """Begin again from the log with the next ask."""
        self.folded = None
        self._on_crash(self.stream, error)
        is_told = isinstance(error, UnreadableRecord)  # as everybody else who reads the stream is
        _settle_all(asks, error if is_told else Crashed(f"{self.stream} broke: {error!r}"))

    def _take(self, mail: deque[Ask[State, Command]]) -> list[Ask[State, Command]]:
        """Take what waits and may go together."""
        taken = [mail.popleft()]
        while mail and len(taken) < BATCH and _go_together(taken[-1], mail[0]):
            taken.append(mail.popleft())
        return taken

    # Deciding and writing

    async def _handle(self, asks: list[Ask[State, Command]]) -> None:
        for last_try in (False,) * (TRIES - 1) + (True,):
            try:
                await self._decide_and_append(asks)
            except Conflict as conflict:
                if last_try:
                    raise
                await self._after_conflict(asks, conflict)
            except InvalidAppend:
                if len(asks) == 1:
                    raise
                await self._handle_one_by_one(asks)
                return
            else:
                return

    async def _handle_one_by_one(self, asks: list[Ask[State, Command]]) -> None:
        """Handle asks that together are too much for one append; one may be too much by itself."""
        for ask in asks:
            try:
                await self._handle([ask])
            except InvalidAppend as error:
                ask.settle(error)

    async def _after_conflict(self, asks: list[Ask[State, Command]], conflict: Conflict) -> None:
        """Fold what others wrote. An ask whose own extra writes conflict hears of it."""
        if asks[0].also and not self._is_mine(conflict):
            asks[0].settle(conflict)
            asks.clear()
        await self._fold_more()

    def _is_mine(self, conflict: Conflict) -> bool:
        return getattr(conflict, "stream", None) == self.stream

    async def _decide_and_append(self, asks: list[Ask[State, Command]]) -> None:
        folded = self.folded
        assert folded is not None  # noqa: S101 - it was folded before
        decided: list[tuple[Ask[State, Command], Exception | None]] = []
        events: list[NewEvent] = []
        writes: list[StreamWrite] = []
        state = folded.state
        for ask in asks:
            if ask.answer is not None:
                continue
            try:
                state = self._decide(state, ask, events)
            except (Refusal, CodecError, InvalidAppend) as refusal:
                decided.append((ask, refusal))  # its cause may be in this very append
            except Exception as error:  # noqa: BLE001 - a bug in the rules hurts only its command
                ask.settle(Crashed(f"{type(ask.command).__name__} broke {self.stream}: {error!r}"))
                self._on_crash(self.stream, error)
            else:
                decided.append((ask, None))
                writes.extend(ask.also)
        if events:
            seal = self._decider.is_over(state)
            writes.append(StreamWrite(self.stream, folded.version, events, folded.scope, seal))
        if writes:
            new_work = asks[0].new_work  # as in all of them
            append = Append(writes, self._conditions(folded))
            receipt = await self._log.append(append, new_work=new_work)
            self.folded = folded = self._after(folded, state, receipt.records)
        else:
            await trio.lowlevel.cancel_shielded_checkpoint()
        try:
            if writes:
                self._on_change(folded)
        finally:
            for ask, refused in decided:
                ask.settle(refused or folded)

    def _decide(self, state: State, ask: Ask[State, Command], events: list[NewEvent]) -> State:
        """Decide one ask on the state so far; add its events, give the state after them."""
        mine: list[NewEvent] = []
        if ask.command is None:
            return state
        for event in self._decider.decide(state, ask.command):
            after = self._evolve(state, event)
            mine.append(
                self._decider.events.encode(
                    event,
                    event_id=self._new_id(),
                    event_time=event.at,  # type: ignore[attr-defined]
                    metadata=encoded_metadata(
                        ask.principal,
                        self._decider.trace(after),
                        tuple(self._decider.describe(state, after).items()),
                    ),
                )
            )
            state = after
        if events and mine:
            Append([StreamWrite(self.stream, 0, mine), *ask.also])  # refused alone if it must be
        events.extend(mine)
        return state

    def _after(
        self, folded: Folded[State], state: State, records: Sequence[Record]
    ) -> Folded[State]:
        mine = [record for record in records if record.stream == self.stream]
        if not mine:
            return folded
        last = mine[-1]
        return Folded(
            state, last.version, last.mark, last.commit_time, folded.scope, folded.snapshot
        )

    # Folding

    _knows_all = True  # nobody else writes what this actor folds

    async def _fold(self) -> Folded[State]:
        """Fold what the log holds."""
        folded = await fold_stream(self._log, self._decider, self.stream)
        if folded is None:
            raise NoSuchActor(self.stream)
        return folded

    async def _fold_more(self) -> None:
        """Fold what others wrote."""
        self.folded = await fold_rest(self._log, self._decider, self.stream, self.folded)

    def _evolve(self, state: State, event: Event) -> State:
        return self._decider.evolve(state, event)

    def _conditions(self, folded: Folded[State]) -> Sequence[Unmoved]:  # noqa: ARG002
        """Say what must hold for a decision on what is known."""
        return ()

    def _snapshot_is_due(self) -> bool:
        folded = self.folded
        return folded is not None and folded.version >= folded.snapshot + SNAPSHOT_EVERY

    async def _keep_a_snapshot(self) -> None:
        """Keep the state; one that cannot be kept is passed over: it is a cache."""
        folded = self.folded
        assert folded is not None  # noqa: S101 - a snapshot was due
        self.folded = replace(folded, snapshot=folded.version)
        with suppress(EventLogError, TypeError):
            await self._log.save_snapshot(
                self.stream,
                folded.version,
                folded.mark.event_id,
                fold=self._decider.fold,
                state=self._decider.freeze(folded.state),
            )


def _settle_all(asks: Sequence[Ask[State, Command]], answer: Folded[State] | BaseException) -> None:
    for ask in asks:
        ask.settle(answer)


def _go_together(one: Ask[Any, Any], next_one: Ask[Any, Any]) -> bool:
    """Tell whether two asks may share an append: one that is refused takes the other along."""
    return not one.also and not next_one.also and one.new_work == next_one.new_work
