"""The mailbox: one actor, one task, one stream.

The loop takes all asks that wait, decides each on the state folded so far, folds what follows, and
appends once. Only then are the askers answered: what they hear is on disk. Between the append's
return and the answers there is no checkpoint, and whoever took an ask settles it, whatever happens:
nobody waits for a dead actor.

Folding comes before writing, so an ``evolve`` that fails leaves the log untouched. A conflict means
that the log knows more than the actor: fold again, decide again. Any other failure of the log ends
the actor and is its supervisor's business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import trio

from actors.errors import Refusal
from actors.folded import Folded
from actors.folding import Streams, fold_rest, fold_stream
from eventlog.append import Append, StreamWrite
from eventlog.errors import Conflict, EventLogError, LogClosed, Overloaded, Unavailable
from eventlog.record import Metadata

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.decider import Decider
    from eventlog.append import Receipt
    from eventlog.record import FieldValue, NewEvent, Record

State = TypeVar("State")
Command = TypeVar("Command")
Event = TypeVar("Event")

MAX_MAIL: Final = 256  # asks that may wait for one actor; an actor answers in milliseconds
BATCH: Final = 64
TRIES: Final = 5
SNAPSHOT_EVERY: Final = 500  # events; so many are folded in a few milliseconds


class Gone(Exception):
    """The actor is no longer there. Ask its successor."""


class NoSuchActor(Exception):
    """Its stream does not exist."""


class Crashed(Exception):
    """The actor's own rules failed, on this command or on what its stream holds."""


class Log(Streams, Protocol):
    """What an actor needs of the log."""

    async def append(self, append: Append, *, new_work: bool = False) -> Receipt:
        """Write records; return when they are on disk."""

    async def save_snapshot(
        self, stream: str, version: int, event_id: bytes, *, fold: str, state: bytes
    ) -> None:
        """Keep what a fold makes of a stream up to a version."""


@dataclass(eq=False, slots=True)
class _Ask(Generic[State, Command]):
    """A command, who sends it, what is to be written with it, and the answer."""

    command: Command | None  # None: just look
    principal: str | None
    also: Sequence[StreamWrite]
    new_work: bool
    answered: trio.Event = field(default_factory=trio.Event)
    answer: Folded[State] | BaseException | None = None

    def settle(self, answer: Folded[State] | BaseException) -> None:
        """Answer, once."""
        if self.answer is None:
            self.answer = answer
            self.answered.set()


class Actor(Generic[State, Command, Event]):
    """A stream that thinks."""

    def __init__(
        self,
        decider: Decider[State, Command, Event],
        stream: str,
        *,
        log: Log,
        new_id: Callable[[], bytes],
        on_change: Callable[[Folded[State]], None] = lambda _: None,
        folded: Folded[State] | None = None,
    ) -> None:
        """Nothing is read before ``run``, and nothing at all if ``folded`` is known already.

        ``on_change`` hears of each append, before the askers.
        """
        self.stream = stream
        self._decider = decider
        self._log = log
        self._new_id = new_id
        self._on_change = on_change
        self._mail: deque[_Ask[State, Command]] = deque()  # bounded by MAX_MAIL
        self._arrived = trio.Event()
        self._closed = False
        self._busy = True  # until the stream is folded
        self._aged = False
        self._metadata: dict[object, bytes] = {}  # encoded once; a run has a handful of kinds
        self.folded = folded

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
        """
        return await self._post(_Ask(command, principal, also, new_work))

    async def _post(self, ask: _Ask[State, Command]) -> Folded[State]:
        if self._closed:
            raise Gone(self.stream)
        if len(self._mail) >= MAX_MAIL:
            raise Overloaded(len(self._mail))
        self._mail.append(ask)
        self._arrived.set()
        try:
            await ask.answered.wait()
        except trio.Cancelled:
            if ask in self._mail:
                self._mail.remove(ask)
            raise
        if isinstance(ask.answer, BaseException):
            raise ask.answer
        assert ask.answer is not None  # noqa: S101 - answered
        return ask.answer

    async def look(self) -> Folded[State]:
        """Give the state as it is on disk, after everything that was asked before."""
        return await self._post(_Ask(None, None, (), new_work=False))

    def has_been_idle(self) -> bool:
        """Tell whether nobody has asked anything since this question was last put."""
        was_idle, self._aged = self._aged, not self._busy and not self._mail
        return was_idle and self._aged

    def leave(self) -> None:
        """End the actor's task, if nobody waits; a successor knows all it knew."""
        if not self._busy and not self._mail:
            self._close(Gone(self.stream))
            self._arrived.set()

    async def run(self) -> None:
        """Fold the stream and answer asks, until told to leave."""
        try:
            if self.folded is None:
                self.folded = await self._fold()
                await self._keep_a_snapshot()
            self._busy = False
            while await self._has_mail():
                self._busy = True
                await self._handle(self._take())
                await self._keep_a_snapshot()
                self._busy = self._aged = False
        except NoSuchActor as error:
            self._close(error)
        except Exception as error:
            if self.folded is None:  # a successor would fare no better, so nobody is sent there
                known = isinstance(error, LogClosed | Unavailable)
                self._close(error if known else Crashed(f"{self.stream} is unreadable: {error!r}"))
            raise
        finally:
            self._close(Gone(self.stream))

    def _close(self, reason: Exception) -> None:
        """Take no more mail and settle what is there. In the same stretch nobody can get in."""
        self._closed = True
        while self._mail:
            self._mail.popleft().settle(reason)

    async def _has_mail(self) -> bool:
        if not self._mail and not self._closed:
            self._arrived = trio.Event()
            await self._arrived.wait()
        return bool(self._mail)

    def _take(self) -> list[_Ask[State, Command]]:
        """Take what waits; an ask that writes elsewhere too is taken alone."""
        taken = [self._mail.popleft()]
        while self._mail and len(taken) < BATCH and not taken[-1].also and not self._mail[0].also:
            taken.append(self._mail.popleft())
        return taken

    # Deciding and writing

    async def _handle(self, asks: list[_Ask[State, Command]]) -> None:
        try:
            for _ in range(TRIES - 1):
                try:
                    return await self._decide_and_append(asks)
                except Conflict as conflict:
                    await self._after_conflict(asks, conflict)
            await self._decide_and_append(asks)
        except (Conflict, Unavailable) as error:
            _settle_all(asks, error)  # nothing was written and nothing is wrong with the actor
        except EventLogError as error:
            _settle_all(asks, error)
            raise
        finally:
            _settle_all(asks, Gone(self.stream))

    async def _after_conflict(self, asks: list[_Ask[State, Command]], conflict: Conflict) -> None:
        """Fold what others wrote. An ask whose own extra writes conflict hears of it."""
        if asks[0].also and not self._is_mine(conflict):
            asks[0].settle(conflict)
            asks.clear()
        self.folded = await fold_rest(self._log, self._decider, self.stream, self.folded)

    def _is_mine(self, conflict: Conflict) -> bool:
        return getattr(conflict, "stream", None) == self.stream

    async def _decide_and_append(self, asks: list[_Ask[State, Command]]) -> None:
        folded = self.folded
        assert folded is not None  # noqa: S101 - run() has folded
        decided: list[tuple[_Ask[State, Command], Refusal | None]] = []
        events: list[NewEvent] = []
        also: list[StreamWrite] = []
        state = folded.state
        for ask in asks:
            try:
                state = self._decide(state, ask, events)
            except Refusal as refusal:
                decided.append((ask, refusal))  # its cause may be in this very append
            except Exception as error:
                ask.settle(Crashed(f"{type(ask.command).__name__} broke {self.stream}: {error!r}"))
                raise
            else:
                decided.append((ask, None))
                also.extend(ask.also)
        if events:
            seal = self._decider.is_over(state)
            write = StreamWrite(self.stream, folded.version, events, folded.scope, seal)
            also.insert(0, write)
        if also:
            new_work = any(ask.new_work for ask in asks)
            receipt = await self._log.append(Append(also), new_work=new_work)
            self.folded = folded = self._after(folded, state, receipt.records)
        try:
            if also:
                self._on_change(folded)
        finally:
            for ask, refusal in decided:
                ask.settle(refusal or folded)

    def _decide(self, state: State, ask: _Ask[State, Command], events: list[NewEvent]) -> State:
        """Decide one ask on the state so far; add its events, give the state after them."""
        mine: list[NewEvent] = []
        if ask.command is None:
            return state
        for event in self._decider.decide(state, ask.command):
            after = self._decider.evolve(state, event)
            mine.append(
                self._decider.events.encode(
                    event,
                    event_id=self._new_id(),
                    event_time=event.at,  # type: ignore[attr-defined]
                    metadata=self._encoded(ask.principal, self._decider.describe(state, after)),
                )
            )
            state = after
        events.extend(mine)
        return state

    def _encoded(self, principal: str | None, fields: Mapping[str, FieldValue]) -> bytes:
        kind = (principal, *fields.values())
        encoded = self._metadata.get(kind)
        if encoded is None:
            if len(self._metadata) > BATCH:
                self._metadata.clear()
            encoded = self._metadata[kind] = Metadata(principal=principal, fields=fields).encode()
        return encoded

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

    async def _fold(self) -> Folded[State]:
        folded = await fold_stream(self._log, self._decider, self.stream)
        if folded is None:
            raise NoSuchActor(self.stream)
        return folded

    async def _keep_a_snapshot(self) -> None:
        """Keep the state now and then, so that nobody has to fold all of a long stream again."""
        folded = self.folded
        if folded is None or folded.version < folded.snapshot + SNAPSHOT_EVERY:
            return
        await self._log.save_snapshot(
            self.stream,
            folded.version,
            folded.mark.event_id,
            fold=self._decider.fold,
            state=self._decider.freeze(folded.state),
        )
        self.folded = replace(folded, snapshot=folded.version)


def _settle_all(asks: Sequence[_Ask[State, Command]], answer: BaseException) -> None:
    for ask in asks:
        ask.settle(answer)
