"""Actors in memory, by stream: brought to life when first asked and let go when idle.

An actor is nothing that has to be kept: whatever it knows is in the log. One that crashes begins
again from there with the next ask; its failure is logged and touches nobody else.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import trio

from perdure.actors.errors import NoSuchActor
from perdure.actors.mailbox import Actor
from perdure.actors.scope_actor import ScopeActor
from perdure.eventlog.errors import LogClosed, Overloaded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from perdure.actors.folded import Folded
    from perdure.actors.kind import Kind
    from perdure.eventlog.append import StreamWrite
    from perdure.eventlog.env import Env
    from perdure.eventlog.log import EventLog

State = TypeVar("State")
Command = TypeVar("Command")
Event = TypeVar("Event")

BRIEFLY: Final = 1.0  # seconds that a reader waits for what is being written
IDLE: Final = 60.0  # seconds without mail after which an actor is let go
_log = logging.getLogger("perdure.actors")


class LiveActors(Generic[State, Command, Event]):
    """All live actors of one kind."""

    def __init__(
        self,
        kind: Kind[State, Command, Event],
        *,
        log: EventLog,
        env: Env,
        idle: float = IDLE,
        on_change: Callable[[Folded[State]], None] = lambda _: None,
    ) -> None:
        """Nothing lives before ``run``. ``on_change`` hears of every append of every actor."""
        self._kind = kind
        self._log = log
        self._env = env
        self._idle = idle
        self._on_change = on_change
        self._live: dict[str, Actor[State, Command, Event]] = {}
        self._nursery: trio.Nursery | None = None
        self.started = 0  # how many actors came to life
        self.crashed = 0  # how often one crashed

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the actors' tasks until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                await self._let_go_of_the_idle()
            finally:
                self._nursery = None

    async def _let_go_of_the_idle(self) -> None:
        """Look around twice in the time after which an idle actor may go."""
        while True:
            await self._env.sleep(self._idle / 2)
            self.let_go(lambda actor: actor.has_been_idle())

    def let_go(
        self,
        which: Callable[[Actor[State, Command, Event]], bool] = lambda actor: actor.is_idle,
    ) -> None:
        """Let go of actors, of all that are idle unless told otherwise."""
        for actor in list(self._live.values()):
            if which(actor) and actor.is_idle:
                del self._live[actor.stream]

    def plant(self, stream: str, folded: Folded[State]) -> None:
        """Take in an actor whose whole history is known: it was just written, or just read."""
        if stream not in self._live:
            self._make(stream, folded)

    async def ask(
        self,
        stream: str,
        command: Command,
        *,
        principal: str | None = None,
        also: Sequence[StreamWrite] = (),
        new_work: bool = False,
    ) -> Folded[State]:
        """Ask an actor, bringing it to life if need be; new work is not queued if it must wait."""
        if new_work:
            self._log.writer.refuse_if_full()
        actor = self._actor(stream)
        try:
            return await actor.ask(command, principal=principal, also=also, new_work=new_work)
        except NoSuchActor:
            self._forget(actor)
            raise

    async def look(self, stream: str) -> Folded[State]:
        """Give the state of an actor, after everything that was asked before."""
        actor = self._actor(stream)
        try:
            return await actor.look()
        except NoSuchActor:
            self._forget(actor)
            raise

    async def look_briefly(self, stream: str) -> Folded[State] | None:
        """Give the state of an actor after what it is writing, unless that takes long."""
        with trio.move_on_after(BRIEFLY), suppress(Overloaded):
            return await self.look(stream)
        return None

    def peek(self, stream: str) -> Folded[State] | None:
        """Give what a live actor knows, if there is one."""
        actor = self._live.get(stream)
        return actor.folded if actor is not None else None

    @property
    def live(self) -> int:
        """How many actors live."""
        return len(self._live)

    def _actor(self, stream: str) -> Actor[State, Command, Event]:
        actor = self._live.get(stream)
        return actor if actor is not None else self._make(stream)

    def _make(
        self, stream: str, folded: Folded[State] | None = None
    ) -> Actor[State, Command, Event]:
        make = ScopeActor if self._kind.decider.folds_scope else Actor
        actor = self._live[stream] = make(
            self._kind.decider,
            stream,
            log=self._log,
            new_id=self._env.new_event_id,
            start=self._start,
            on_change=self._on_change,
            on_crash=self._crashed,
            folded=folded,
        )
        self.started += 1
        return actor

    def _forget(self, actor: Actor[State, Command, Event]) -> None:
        if actor.is_idle and self._live.get(actor.stream) is actor:
            del self._live[actor.stream]

    def _start(self, work: Callable[[], Awaitable[None]]) -> None:
        if self._nursery is None:
            raise LogClosed("this process is going down")
        self._nursery.start_soon(work)

    def _crashed(self, stream: str, error: Exception) -> None:
        self.crashed += 1
        about = {self._kind.id_field: self._kind.id_of(stream)}
        _log.error("the actor of %s crashed", stream, exc_info=error, extra=about)
