"""The executor of runs, so many at a time.

A run is activated only when its entry is about to be called; until then it waits, visible as
queued. With one writer per log the executor is alone, so whatever is found alive at start-up
belongs to a process that is gone (``perdure.runtime.execution.recovery``).
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from perdure.actors.errors import Fenced, NoSuchActor, NotNow
from perdure.actors.run.commands import Activate, Finish, Recover
from perdure.actors.run.events import RunError
from perdure.actors.run.history import History
from perdure.actors.run.item_id import item_number
from perdure.actors.run.kind import RUN_KIND
from perdure.actors.run.status import Outcome
from perdure.actors.run.stream import stream_of
from perdure.eventlog.errors import LogClosed, Unavailable
from perdure.runtime.execution.children import Children, takes_its_children_along
from perdure.runtime.execution.creator import Creator
from perdure.runtime.execution.execution import Execution
from perdure.runtime.execution.processes import NoProcesses
from perdure.runtime.execution.recovery import ends_instead, read_history, suspects_with
from perdure.runtime.execution.run_ends import Ends, has_come
from perdure.runtime.execution.run_queue import RunQueue
from perdure.runtime.execution.threads import THREADS, call_in_thread
from perdure.runtime.kernel.live_actors import LiveActors
from perdure.runtime.plugins.plugin import programs_of
from perdure.runtime.secrets.logged_run import LoggedRun, about_run, current_run, work_for
from perdure.runtime.secrets.run_logging import logging_of_runs
from perdure.runtime.secrets.secret import has_sealed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from perdure.actors.folded import Folded
    from perdure.actors.run.commands import RunCommand
    from perdure.actors.run.core import Run
    from perdure.actors.run.events import RunCreated, RunEvent
    from perdure.eventlog.append import StreamWrite
    from perdure.runtime.execution.host_context import HostContext
    from perdure.runtime.execution.inline_port import InlinePort
    from perdure.runtime.execution.processes import Processes
    from perdure.runtime.plugins.loading import LoadedPlugins
    from perdure.runtime.plugins.plugin import Entry, Plugin
    from perdure.runtime.secrets.redaction import Redactor

LOOK_AGAIN: Final = 0.05  # seconds between two looks at runs that may come to rest
BUSY_PAUSE: Final = 0.01  # seconds between two tries to ask a run that is asked too much
MAX_HISTORIES: Final = 10_000
_log = logging.getLogger("perdure.host")


class Executor:
    """Executes the runs of one process."""

    def __init__(self, context: HostContext, *, processes: Processes | None = None) -> None:
        """Nothing runs before ``run``."""
        self.context = context
        self.runs: LiveActors[Run, RunCommand, RunEvent] = LiveActors(
            RUN_KIND,
            log=context.log,
            env=context.env,
            idle=context.limits.idle,
            on_change=self._changed,
        )
        self.creator = Creator(self)
        self.children = Children(self)
        self.threads = trio.CapacityLimiter(THREADS)  # their own: a commit never waits for them
        self.processes = processes or NoProcesses()
        self.closing = False  # no new work is taken
        self.suspects: Counter[str] = Counter()  # by host, of those that were lost
        self._env = context.env
        self._queue = RunQueue(context)
        self._executions: dict[str, Execution] = {}
        self._starting: set[str] = set()  # activated, and about to be executed
        self._histories: dict[str, History] = {}  # of runs that wait; at most MAX_HISTORIES
        self._ends = Ends()
        self._nursery: trio.Nursery | None = None
        self._one_less = trio.Event()
        self._draining = False

    def use(self, plugins: Mapping[str, Plugin]) -> None:
        """Execute runs that start from now on with these plugins."""
        self.context.entries.plugins = plugins
        self._start_ready()  # one that was loaded anew may have another limit

    async def load(self, loaded: LoadedPlugins) -> None:
        """Execute runs that start from now on with what was loaded anew."""
        self.context.entries.problems = loaded.problems
        self.use(loaded.plugins)
        await self.processes.keep_only(programs_of(loaded.plugins))

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Execute what is dispatched, until cancelled."""
        with logging_of_runs():
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
        principal = self.context.name
        while True:
            try:
                return await self.runs.ask(
                    stream_of(run_id), command, principal=principal, also=also
                )
            except Unavailable:
                await self._env.sleep(BUSY_PAUSE)

    async def end_of(self, run_id: str, after: int | None = None) -> Folded[Run]:
        """Wait for the end of a run, or for a record of it after a position, or raise LetGo."""
        folded = self.runs.peek(stream_of(run_id)) or await self.runs.look(stream_of(run_id))
        if has_come(folded, after):
            await trio.lowlevel.checkpoint()
            return folded
        return await self._ends.of(run_id, after)

    # Taking up

    def remember(self, run_id: str, history: History) -> None:
        """Keep the history of a run that waits for its turn, so as not to read it again."""
        if len(self._histories) < MAX_HISTORIES:
            self._histories[run_id] = history

    def dispatch(self, run_id: str, plugin_id: str) -> None:
        """Execute a run when its turn comes."""
        self._queue.add(run_id, plugin_id)
        self._start_ready()

    def close(self) -> None:
        """Take no new work and start nothing that waits; what runs goes on."""
        self.closing = True

    def drain(self) -> None:
        """Start nothing more and let go of what runs, for the next host to go on."""
        self.close()
        self._draining = True
        for execution in list(self._executions.values()):
            execution.drain()
        self._ends.let_go()

    async def settled(self) -> None:
        """Wait until nothing runs and, unless the host closes, nothing waits for its turn."""
        while self.running or (self.waiting and not self.closing):
            await self._one_less.wait()

    async def at_rest(self, until: int) -> None:
        """Wait until nothing runs but what only waits itself, and still will at an instant."""
        while self.running > sum(
            execution.waiting.goes_on_beyond(until) for execution in self._executions.values()
        ):
            with trio.move_on_after(LOOK_AGAIN):
                await self._one_less.wait()

    @property
    def running(self) -> int:
        """How many runs are being executed."""
        return self._queue.running

    @property
    def waiting(self) -> int:
        """How many runs wait for their turn."""
        return self._queue.waiting

    def rest(self, by: int) -> None:
        """Know of one execution more, or less, that does nothing but wait."""
        self._queue.rest(by)
        if by > 0:
            self._start_ready()

    def _start_ready(self) -> None:
        if self._nursery is not None and not self.closing:
            for run_id, plugin_id in self._queue.take_ready():
                self._nursery.start_soon(self._execute, run_id, plugin_id)

    # Executing

    async def _execute(self, run_id: str, plugin_id: str) -> None:
        try:
            await self._activate_and_execute(run_id)
        except LogClosed:
            pass  # this host is going down, and the log has said why
        except Exception:  # noqa: BLE001 - the edge of a run: it touches no other
            speaking_of = current_run()
            if speaking_of is None or speaking_of.run_id != run_id:  # it was not even activated
                work_for(LoggedRun(run_id))
            _log.exception("run %s broke", run_id)
            await self._give_up(run_id)
        finally:
            self._queue.ended(plugin_id)
            self._start_ready()
            self._one_less.set()
            self._one_less = trio.Event()

    async def _give_up(self, run_id: str) -> None:
        """End a run that we ourselves have broken; if that is impossible, leave it as it is."""
        known = self.runs.peek(stream_of(run_id))
        try:
            run = (known or await self.runs.look(stream_of(run_id))).state
            if run.active:
                told = RunError(code="INTERNAL", message="Perdure failed; its own log has more")
                end = Finish(
                    epoch=run.epoch, outcome=Outcome.FAILED, error=told, at=self._env.now()
                )
                await self.ask(run_id, end)
        except Exception:  # noqa: BLE001 - the next start takes it up
            _log.warning("run %s cannot be ended and is left as it is", run_id, exc_info=True)

    async def _activate_and_execute(self, run_id: str) -> None:
        self._starting.add(run_id)
        try:
            execution = await self._activate(run_id)
            if execution is not None:
                self._executions[run_id] = execution
                if self._draining:
                    execution.drain()
        finally:
            self._starting.discard(run_id)
            self._histories.pop(run_id, None)
        if execution is None:
            await self._end_if_asked(run_id)
            return
        try:
            await execution.execute()
        finally:
            if self._executions.get(run_id) is execution:  # and not the one that took over
                del self._executions[run_id]

    async def _end_if_asked(self, run_id: str) -> None:
        """End a run that was asked to end while it was being activated."""
        known = self.runs.peek(stream_of(run_id)) or await self.runs.look(stream_of(run_id))
        if known.state.cancel is not None and not known.state.status.is_terminal:
            await self._end_without_executing(run_id)

    async def _activate(self, run_id: str) -> Execution | None:
        """Activate a run; give its execution, unless there is nothing to execute."""
        known = self.runs.peek(stream_of(run_id)) or await self.runs.look(stream_of(run_id))
        run = known.state
        work_for(LoggedRun(run_id, run.created.trace_id))
        if run.epoch and await ends_instead(self, run):
            return None  # what was taken up, and its plugin was loaded anew before its turn came
        version, entry = self.context.entries.pinned(run)
        activate = Activate(
            host=self.context.name,
            epoch=run.epoch + 1,
            plugin_version=version,
            suspects=suspects_with(self, run),
            at=self._env.now(),
        )
        try:
            folded = await self.ask(run_id, activate)
        except (NotNow, Fenced):
            return None  # canceled before its turn came, or taken up by somebody else
        if entry is None:
            await self._not_ready(run_id, folded.state)
            return None
        history = self._histories.get(run_id)
        if history is None and folded.state.epoch > 1:
            history = await read_history(self.context.log, run_id)
            folded = await self.runs.look(stream_of(run_id))
        if folded.state.status.is_terminal or folded.state.epoch != activate.epoch:
            return None  # ended or taken over while its history was being read
        return Execution(self, folded, entry, history or History())

    async def call(
        self, execution: Execution, entry: Entry, port: InlinePort, args: dict[str, Any]
    ) -> Any:  # noqa: ANN401 - what the entry returns
        """Call an entry, wherever it runs."""
        if entry.where == "process":
            return await self.processes.call(execution, entry, port, args)
        assert entry.handler is not None  # noqa: S101 - only a program has none
        if entry.where == "thread":
            return await call_in_thread(execution, entry.handler, port, args)
        return await entry.handler(port.context(), **args)

    async def _not_ready(self, run_id: str, run: Run) -> None:
        name = f"{run.created.plugin_id}.{run.created.entry_id}"
        error = RunError(code="NOT_READY", message=f"{name} is not loaded", retriable=True)
        finish = Finish(epoch=run.epoch, outcome=Outcome.FAILED, error=error, at=self._env.now())
        with suppress(Fenced):  # canceled meanwhile
            await self.ask(run_id, finish)

    # Hearing

    def _changed(self, folded: Folded[Run]) -> None:
        """Hear of an append of any run: tell its execution, and its children if it is to end."""
        run = folded.state
        execution = self._executions.get(run.created.run_id)
        if execution is not None:
            execution.see(run)
        self._ends.tell(folded)
        if run.status.is_terminal and has_sealed(run.created.args):
            self.start(partial(self.context.secrets.drop, run.created.run_id))
        if self._nursery is None:
            return
        if run.children and takes_its_children_along(run):
            self._nursery.start_soon(self.children.cancel, run)
        is_nobodys = execution is None and run.created.run_id not in self._starting
        if run.cancel is not None and is_nobodys and not run.status.is_terminal:
            self._nursery.start_soon(self._end_without_executing, run.created.run_id)

    async def _end_without_executing(self, run_id: str) -> None:
        """End a run that was taken up after a crash and asked to end before its turn came."""
        try:
            await self.ask(run_id, Recover(resumes=True, compatible=True, at=self._env.now()))
        except LogClosed:
            pass  # this host is going down; the next one sees to it
        except Exception:  # noqa: BLE001 - the edge of a run: what breaks it touches no other
            with about_run(run_id):
                _log.exception("run %s could not be ended", run_id)

    async def redactor_of(self, created: RunCreated) -> Redactor:
        """Give what knows the secrets of a run, also before its turn has come."""
        names = self.context.entries.secrets(created.plugin_id, created.entry_id)
        redactor = await self.context.secrets.redactor(names, created)
        execution = self._executions.get(created.run_id)
        if execution is not None:
            redactor.learn_from(execution.redactor)
        return redactor

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

    def start(self, task: Callable[[], Awaitable[None]]) -> bool:
        """Run a task beside the executions; tell whether that is still possible."""
        if self._nursery is None:
            return False
        self._nursery.start_soon(task)
        return True
