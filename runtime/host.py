"""The host: it executes runs, so many at a time.

A run is activated only when its entry is about to be called; until then it waits, visible as
queued. With one writer per log the host is alone, so whatever is found alive at start-up belongs to
a host that is gone (``runtime.recovery``).
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import trio

from actors.errors import Fenced, NoSuchActor, NotNow
from actors.folded import Folded
from actors.run.commands import Activate, Finish, Recover, RequestCancel
from actors.run.core import RUN, Run
from actors.run.events import RUN_EVENTS, RunCreated, RunError
from actors.run.history import History
from actors.run.status import CancelMode, Outcome
from actors.run.views import item_number
from eventlog.append import StreamWrite
from eventlog.errors import LogClosed, Unavailable
from eventlog.record import Metadata
from runtime.blobs import BlobStore
from runtime.execution import Execution
from runtime.process.pool import Pool
from runtime.registry import IDLE, Registry
from runtime.threads import THREADS, call_in_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from actors.run.commands import Deliver, RunCommand
    from actors.run.events import ChildStarted, RunEvent
    from eventlog.env import Env
    from eventlog.log import EventLog
    from eventlog.record import Record
    from runtime.contract import RunContext
    from runtime.plugin import Entry, Plugin

CANCEL_GRACE: Final = 5.0  # seconds an entry gets to obey, and again after being interrupted
SYNC_WAIT: Final = 30.0  # seconds that a caller who wants to wait for the end may wait
BUSY_PAUSE: Final = 0.01  # seconds between two tries to ask a run that is asked too much
MAX_HISTORIES: Final = 10_000
DEFAULT_LIMIT: Final = 1000  # runs at once, on the whole host
_log = logging.getLogger("perdure.host")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLimits:
    """How much runs at once, and how long things may take, in seconds."""

    runs: int = DEFAULT_LIMIT
    cancel_grace: float = CANCEL_GRACE
    sync_wait: float = SYNC_WAIT
    idle: float = IDLE  # after which an actor that nobody asks is let go
    timeout: float | None = None  # the longest that any run may ask for
    progress_items: bool = False  # whether progress is exported as well, for people who read along
    inline_limit: int = 64 << 10  # bytes that an item may hold itself; more become a blob


@dataclass(eq=False, slots=True)
class _End:
    """The end of a run that somebody waits for."""

    came: trio.Event = field(default_factory=trio.Event)
    folded: Folded[Run] | None = None


def stream_of(run_id: str) -> str:
    """Name the stream of a run."""
    return f"run/{run_id}"


class Host:
    """Executes runs of its plugins."""

    def __init__(
        self,
        env: Env,
        log: EventLog,
        plugins: Mapping[str, Plugin],
        *,
        limits: HostLimits | None = None,
        blobs: BlobStore | None = None,
    ) -> None:
        """Nothing runs before ``run``."""
        self.env = env
        self.log = log
        self.blobs = blobs or BlobStore(env)
        self.plugins = plugins
        self.limits = limits or HostLimits()
        self.name = str(env.new_id())
        self.runs: Registry[Run, RunCommand, RunEvent] = Registry(
            RUN, log=log, env=env, idle=self.limits.idle, on_change=self._changed
        )
        self.threads = trio.CapacityLimiter(THREADS)  # their own: a commit never waits for them
        self.processes = Pool(env, grace=self.limits.cancel_grace)
        self._waiting: dict[str, deque[str]] = {}  # plugin -> run ids, as many as were accepted
        self._running: Counter[str] = Counter()
        self._executions: dict[str, Execution] = {}
        self._histories: dict[str, History] = {}  # of runs that wait; at most MAX_HISTORIES
        self._ends: dict[str, list[_End]] = {}  # one for each who waits for a run's end
        self._nursery: trio.Nursery | None = None
        self._one_less = trio.Event()
        self._draining = False

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Execute what is dispatched, until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.runs.run)
            await nursery.start(self.processes.run)
            self._nursery = nursery
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    async def ask(
        self, run_id: str, command: RunCommand, *, also: Sequence[StreamWrite] = ()
    ) -> Folded[Run]:
        """Ask a run, as long as it takes: what a host has to say is not for others to do later."""
        while True:
            try:
                return await self.runs.ask(
                    stream_of(run_id), command, principal=self.name, also=also
                )
            except Unavailable:
                await self.env.sleep(BUSY_PAUSE)

    async def end_of(self, run_id: str) -> Folded[Run]:
        """Wait for the end of a run."""
        folded = self.runs.peek(stream_of(run_id)) or await self.runs.look(stream_of(run_id))
        if folded.state.status.is_terminal:
            await trio.lowlevel.checkpoint()
            return folded
        end = _End()
        waiting = self._ends.setdefault(run_id, [])
        waiting.append(end)
        try:
            await end.came.wait()
        finally:
            waiting.remove(end)
            if not waiting:
                del self._ends[run_id]
        assert end.folded is not None  # noqa: S101 - it came
        return end.folded

    # Taking up

    def remember(self, run_id: str, history: History) -> None:
        """Keep the history of a run that waits for its turn, so as not to read it again."""
        if len(self._histories) < MAX_HISTORIES:
            self._histories[run_id] = history

    def dispatch(self, run_id: str, plugin_id: str) -> None:
        """Execute a run when its turn comes."""
        self._waiting.setdefault(plugin_id, deque()).append(run_id)
        self._start_ready()

    def drain(self) -> None:
        """Start nothing more and let go of what runs, for the next host to go on."""
        self._draining = True
        for execution in list(self._executions.values()):
            execution.drain()

    async def settled(self) -> None:
        """Wait until nothing runs and, unless the host drains, nothing waits for its turn."""
        while self.running or (self._waiting and not self._draining):
            await self._one_less.wait()

    @property
    def running(self) -> int:
        """How many runs are being executed."""
        return self._running.total()

    def _start_ready(self) -> None:
        """Start what waits, plugin by plugin, as far as the limits allow."""
        if self._nursery is None or self._draining:
            return
        for plugin_id in list(self._waiting):
            waiting = self._waiting[plugin_id]
            plugin = self.plugins.get(plugin_id)
            limit = plugin.limit if plugin is not None and plugin.limit else self.limits.runs
            while waiting and self._running[plugin_id] < limit and self.running < self.limits.runs:
                self._running[plugin_id] += 1
                self._nursery.start_soon(self._execute, waiting.popleft(), plugin_id)
            if not waiting:
                del self._waiting[plugin_id]

    # Executing

    async def _execute(self, run_id: str, plugin_id: str) -> None:
        try:
            await self._activate_and_execute(run_id)
        except LogClosed:
            pass  # this host is going down, and the log has said why
        except Exception as error:  # noqa: BLE001 - the edge of a run: it touches no other
            _log.exception("run %s broke", run_id)
            await self._give_up(run_id, error)
        finally:
            self._running[plugin_id] -= 1
            self._start_ready()
            self._one_less.set()
            self._one_less = trio.Event()

    async def _give_up(self, run_id: str, error: Exception) -> None:
        """End a run that we ourselves have broken; if that is impossible, leave it as it is."""
        known = self.runs.peek(stream_of(run_id))
        try:
            run = (known or await self.runs.look(stream_of(run_id))).state
            if run.active:
                told = RunError(code="INTERNAL", message="Perdure failed; its own log has more")
                end = Finish(epoch=run.epoch, outcome=Outcome.FAILED, error=told, at=self.env.now())
                await self.ask(run_id, end)
        except Exception:  # noqa: BLE001 - the next start takes it up
            _log.warning("run %s is left as it is: %r", run_id, error)

    async def _activate_and_execute(self, run_id: str) -> None:
        known = self.runs.peek(stream_of(run_id)) or await self.runs.look(stream_of(run_id))
        run = known.state
        plugin = self.plugins.get(run.created.plugin_id)
        activate = Activate(
            host=self.name,
            epoch=run.epoch + 1,
            plugin_version=plugin.version if plugin else "",
            at=self.env.now(),
        )
        try:
            folded = await self.ask(run_id, activate)
        except (NotNow, Fenced):
            return  # canceled before its turn came, or taken up by somebody else
        entry = self._entry(run)
        if entry is None:
            await self._not_ready(run_id, folded.state)
            return
        history = self._histories.pop(run_id, None)
        if history is None and folded.state.epoch > 1:
            history = await self._history(run_id)
            folded = await self.runs.look(stream_of(run_id))
        if folded.state.status.is_terminal or folded.state.epoch != activate.epoch:
            return  # ended or taken over while its history was being read
        execution = self._executions[run_id] = Execution(self, folded, entry, history or History())
        try:
            await execution.execute()
        finally:
            if self._executions.get(run_id) is execution:  # and not the one that took over
                del self._executions[run_id]

    async def call(
        self, execution: Execution, entry: Entry, ctx: RunContext, args: dict[str, Any]
    ) -> Any:  # noqa: ANN401 - what the entry returns
        """Call an entry, wherever it runs."""
        if entry.where == "process":
            return await self.processes.call(execution, entry, ctx, args)
        assert entry.handler is not None  # noqa: S101 - only a program has none
        if entry.where == "thread":
            return await call_in_thread(execution, entry.handler, ctx, args)
        return await entry.handler(ctx, **args)

    async def _not_ready(self, run_id: str, run: Run) -> None:
        name = f"{run.created.plugin_id}.{run.created.entry_id}"
        error = RunError(code="NOT_READY", message=f"{name} is not loaded", retriable=True)
        finish = Finish(epoch=run.epoch, outcome=Outcome.FAILED, error=error, at=self.env.now())
        with suppress(Fenced):  # canceled meanwhile
            await self.ask(run_id, finish)

    async def _history(self, run_id: str) -> History:
        history, version = History(), 0
        while True:
            page = await self.log.read_stream(stream_of(run_id), after=version)
            for record in page.records:
                history.add(RUN_EVENTS.decode(record))
                version = record.version
            if not page.more:
                return history

    def _entry(self, run: Run) -> Entry | None:
        plugin = self.plugins.get(run.created.plugin_id)
        return plugin.entries.get(run.created.entry_id) if plugin is not None else None

    def resumes(self, run: Run) -> bool:
        """Tell whether a run's entry can be called again."""
        entry = self._entry(run)
        return entry is not None and entry.resumes

    def is_compatible(self, run: Run) -> bool:
        """Tell whether a run can go on with the plugin that is loaded."""
        plugin = self.plugins.get(run.created.plugin_id)
        return plugin is not None and (
            run.plugin_version in {None, plugin.version} or run.plugin_version in plugin.compatible
        )

    # Hearing

    def _changed(self, folded: Folded[Run]) -> None:
        """Hear of an append of any run: tell its execution, and its children if it is to end."""
        run = folded.state
        execution = self._executions.get(run.created.run_id)
        if execution is not None:
            execution.see(run)
        if run.status.is_terminal:
            for end in self._ends.get(run.created.run_id, ()):
                end.folded = folded
                end.came.set()
        if run.cancel is None or self._nursery is None:
            return
        if run.children:
            self._nursery.start_soon(self._cancel_children, run)
        if execution is None and not run.status.is_terminal:
            self._nursery.start_soon(self._end_without_executing, run.created.run_id)

    async def _end_without_executing(self, run_id: str) -> None:
        """End a run that was taken up after a crash and asked to end before its turn came."""
        with suppress(LogClosed):
            await self.ask(run_id, Recover(resumes=True, compatible=True, at=self.env.now()))

    async def _cancel_children(self, run: Run) -> None:
        with suppress(LogClosed):
            for child in run.children:
                await self._cancel_child(child, run)

    async def cancel_with_its_parent(self, child: Run, parent_id: str) -> Run:
        """Cancel a child whose parent was canceled when there was no time left to tell it."""
        parent = (await self.runs.look(stream_of(parent_id))).state
        if parent.cancel is None:
            return child
        return await self._cancel_child(child.created.run_id, parent)

    async def _cancel_child(self, child: str, parent: Run) -> Run:
        request = RequestCancel(
            by=self.name,
            reason="its parent was canceled",
            mode=parent.cancel_mode or CancelMode.COOPERATIVE,
            at=self.env.now(),
        )
        return (await self.ask(child, request)).state

    async def has_export(self, owner: Run, item_id: str) -> bool:
        """Tell whether an item exists and belongs to the same owner."""
        named = item_number(item_id)
        if named is None:
            return False
        try:
            other = (await self.runs.look(stream_of(named[0]))).state
        except NoSuchActor:
            return False
        same_owner = (other.created.tenant, other.created.principal) == (
            owner.created.tenant,
            owner.created.principal,
        )
        return same_owner and named[1] <= other.exports

    def start(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task beside the executions."""
        if self._nursery is not None:
            self._nursery.start_soon(task)

    # Children

    async def start_child(
        self,
        parent: Run,
        started: ChildStarted,
        command: Deliver,
        plugin_id: str,
        entry_id: str,
        args: dict[str, Any],
    ) -> None:
        """Create a child run in the same append as a delivery of its parent."""
        created = RunCreated(
            run_id=started.child_run_id,
            plugin_id=plugin_id,
            entry_id=entry_id,
            args=args,
            tenant=parent.created.tenant,
            principal=parent.created.principal,
            root_run_id=started.child_run_id,
            attempt=1,
            at=started.at,
            task_id=parent.created.task_id,
            trace_id=parent.created.trace_id,
            session_id=parent.created.session_id,
            started_by=parent.created.run_id,
        )
        await self.ask(parent.created.run_id, command, also=[self.creation(created)])
        self.dispatch(started.child_run_id, plugin_id)

    def accept(self, created: RunCreated, records: Sequence[Record]) -> Folded[Run]:
        """Take up a run that has just been written."""
        stream = stream_of(created.run_id)
        (first,) = [record for record in records if record.stream == stream]
        folded = Folded(RUN.evolve(None, created), 1, first.mark, first.commit_time, first.scope)
        self.runs.plant(stream, folded)
        self.dispatch(created.run_id, created.plugin_id)
        return folded

    def creation(self, created: RunCreated) -> StreamWrite:
        """Give the write that brings a run into being."""
        stream = stream_of(created.run_id)
        run = RUN.evolve(None, created)
        event = RUN_EVENTS.encode(
            created,
            event_id=self.env.new_id().bytes,
            event_time=created.at,
            metadata=Metadata(
                principal=f"{created.tenant}/{created.principal}",
                trace=created.trace_id,
                fields=RUN.describe(None, run),
            ),
        )
        scope = f"session/{created.session_id}" if created.session_id else stream
        return StreamWrite(stream, 0, [event], scope)
