"""The living: actors by stream, started when first asked and let go when idle.

An actor is nothing that has to be kept: whatever it knows is in the log. One that crashes is
started again by the next ask; its failure is logged and touches nobody else. Only when the log
itself fails does everything end, since then nobody knows what is true.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import trio

from actors.mailbox import Actor, Gone
from eventlog.errors import LogClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actors.decider import Decider
    from actors.folded import Folded
    from eventlog.append import StreamWrite
    from eventlog.env import Env
    from eventlog.log import EventLog

State = TypeVar("State")
Command = TypeVar("Command")
Event = TypeVar("Event")

IDLE: Final = 60.0  # seconds without mail after which an actor is let go
_log = logging.getLogger("perdure.actors")


class Registry(Generic[State, Command, Event]):
    """All live actors of one kind."""

    def __init__(
        self,
        decider: Decider[State, Command, Event],
        *,
        log: EventLog,
        env: Env,
        idle: float = IDLE,
        on_change: Callable[[Folded[State]], None] = lambda _: None,
    ) -> None:
        """Nothing lives before ``run``. ``on_change`` hears of every append of every actor."""
        self._decider = decider
        self._log = log
        self._env = env
        self._idle = idle
        self._on_change = on_change
        self._live: dict[str, Actor[State, Command, Event]] = {}
        self._nursery: trio.Nursery | None = None
        self.started = 0  # how many actors were started, for those who count

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
            for actor in list(self._live.values()):
                if actor.has_been_idle():
                    actor.leave()

    def plant(self, stream: str, folded: Folded[State]) -> None:
        """Start an actor whose whole history is known, since it has just been written."""
        if stream not in self._live and self._nursery is not None:
            self._start(stream, folded)

    async def ask(
        self,
        stream: str,
        command: Command,
        *,
        principal: str | None = None,
        also: Sequence[StreamWrite] = (),
        new_work: bool = False,
    ) -> Folded[State]:
        """Ask an actor, starting it if need be; one that is just leaving has a successor."""
        while True:
            try:
                return await self._actor(stream).ask(
                    command, principal=principal, also=also, new_work=new_work
                )
            except Gone:
                await trio.lowlevel.checkpoint()

    async def look(self, stream: str) -> Folded[State]:
        """Give the state of an actor, after everything that was asked before."""
        while True:
            try:
                return await self._actor(stream).look()
            except Gone:
                await trio.lowlevel.checkpoint()

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
        return actor if actor is not None else self._start(stream)

    def _start(
        self, stream: str, folded: Folded[State] | None = None
    ) -> Actor[State, Command, Event]:
        if self._nursery is None:
            raise LogClosed("the registry is not running")
        actor = self._live[stream] = Actor(
            self._decider,
            stream,
            log=self._log,
            new_id=self._new_id,
            on_change=self._on_change,
            folded=folded,
        )
        self.started += 1
        self._nursery.start_soon(self._supervise, actor, name=stream)
        return actor

    async def _supervise(self, actor: Actor[State, Command, Event]) -> None:
        try:
            await actor.run()
        except LogClosed:
            raise
        except Exception:  # noqa: BLE001 - the edge of an actor; the log's failures went on above
            _log.exception("the actor of %s crashed; the next ask starts it again", actor.stream)
        finally:
            if self._live.get(actor.stream) is actor:
                del self._live[actor.stream]

    def _new_id(self) -> bytes:
        return self._env.new_id().bytes
