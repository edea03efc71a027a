"""The pool: workers that are warm, each for one plugin at one version and for one tenant.

A plugin that is loaded anew has other programs, whatever its version says, and so other workers.
"""

from __future__ import annotations

import errno
import shutil
import signal
import sys
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from perdure.runtime.plugins.contract import PluginError, RunCancelled
from perdure.runtime.process.dialogue import Dialogue, NeverBegun
from perdure.runtime.process.sandbox import Sandbox
from perdure.runtime.process.worker import LAST_OUTPUT, Worker, start_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from perdure.eventlog.env import Env
    from perdure.runtime.execution.escalation import Escalation
    from perdure.runtime.execution.execution import Execution
    from perdure.runtime.execution.inline_port import InlinePort
    from perdure.runtime.plugins.plugin import Entry, Program
    from perdure.runtime.process.line_splitter import Line

WARM: Final = 2  # workers of a kind that are kept for the next run
IDLE: Final = 60.0  # seconds for which they are kept
CHILD: Final = "perdure.child"
SHORTAGES: Final = frozenset({errno.EAGAIN, errno.ENOMEM})
TOO_MANY_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})
FREE_FILES: Final = 0.1  # seconds between two tries to start a process with few descriptors left
LONGEST_WAIT: Final = 30.0  # seconds for which a run waits for descriptors


class WorkerKind(NamedTuple):
    """What a worker can be used for again: never across tenants, versions or loads."""

    plugin_id: str
    version: str
    tenant: str
    program: Program


class Pool:
    """All processes of one host."""

    def __init__(
        self,
        env: Env,
        sandbox: Sandbox | None = None,
        *,
        warm: int = WARM,
        idle: float = IDLE,
    ) -> None:
        """Start nothing before it is needed."""
        self._env = env
        self._sandbox = sandbox or Sandbox()
        self._warm = warm
        self._idle = idle
        self._kept: dict[WorkerKind, deque[tuple[float, Worker]]] = {}
        self._nursery: trio.Nursery | None = None
        self._current: frozenset[Program] | None = None  # what may be used again; None for all

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the processes until cancelled; then none is left."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                while True:
                    await self._env.sleep(self._idle / 2)
                    await self._end_the_idle(self._env.monotonic() - self._idle)
            finally:
                self._nursery = None
                with trio.CancelScope(shield=True):
                    await self.let_go()

    async def call(
        self, execution: Execution, entry: Entry, port: InlinePort, args: Mapping[str, Any]
    ) -> Any:  # noqa: ANN401 - what the entry returns
        """Have an entry executed by a process; when this returns or raises, nothing of it runs."""
        program = entry.program
        assert program is not None  # noqa: S101 - a process entry has one
        created = execution.run.created
        version = execution.run.plugin_version or ""
        kind = WorkerKind(created.plugin_id, version, created.tenant, program)
        if (warm := await self._warm_worker(kind)) is not None:
            with suppress(NeverBegun):  # it has died since; another is started, once
                return await self._execute(warm, kind, execution, entry, port, args)
        return await self._execute(await self._start(kind), kind, execution, entry, port, args)

    async def _execute(
        self,
        worker: Worker,
        kind: WorkerKind,
        execution: Execution,
        entry: Entry,
        port: InlinePort,
        args: Mapping[str, Any],
    ) -> Any:  # noqa: ANN401 - what the entry returns
        """Have an entry executed by a worker, which is kept or ended then."""
        worker.on_output = partial(_log, execution)
        talk = Dialogue(self._env, worker, port, execution.until_cancelled)
        clean = False
        try:
            value = await talk.hold(entry.id, args)
            await worker.drained()
            clean = True
        except (PluginError, RunCancelled) as error:
            await worker.drained()
            # A run that we have ended: its entry is still at work, and no other may begin there.
            clean = talk.is_over and isinstance(error, PluginError)
            raise
        finally:
            # Never reuse a worker that saw a secret: the next run's redactor would not know it.
            again = not entry.secrets and not execution.redactor.knows_values
            with trio.CancelScope(shield=True):
                if not (clean and again and await self._keep(kind, worker)):
                    await self._let_end(kind, worker, None if clean else execution.escalation)
        return value

    async def _warm_worker(self, kind: WorkerKind) -> Worker | None:
        """Give a worker that waits, if one is alive; end those that have died."""
        kept = self._kept.get(kind)
        while kept:
            _, worker = kept.pop()
            if worker.is_alive:
                return worker
            await worker.end()
        return None

    async def _start(self, kind: WorkerKind) -> Worker:
        program = kind.program
        command = program.command or (sys.executable, "-m", CHILD, program.home or "")
        path = shutil.which(command[0])
        if path is None:
            why = "there is no such program; install it, or correct it"
            raise _not_started(command[0], why, may_pass=False)
        longest = self._env.monotonic() + LONGEST_WAIT
        while (worker := await self._try_to_start(program, (path, *command[1:]), longest)) is None:
            await self.let_go()  # those that wait for a run hold descriptors too
            await self._env.sleep(FREE_FILES)
        if self._nursery is not None:
            self._nursery.start_soon(worker.pump)
        return worker

    async def _try_to_start(
        self, program: Program, command: tuple[str, ...], longest: float
    ) -> Worker | None:
        """Start a worker, or give None if there are too few descriptors and it may still wait."""
        try:
            order = await self._sandbox.order(self._env, program, command)
            return await start_worker(self._env, command, program, order)
        except OSError as error:
            if error.errno not in TOO_MANY_FILES:
                may_pass = error.errno in SHORTAGES
                raise _not_started(command[0], str(error.strerror), may_pass=may_pass) from error
            if self._env.monotonic() > longest:
                remedy = "the server has too few descriptors; raise its limit (ulimit -n)"
                raise _not_started(command[0], remedy, may_pass=True) from error
            return None

    async def _keep(self, kind: WorkerKind, worker: Worker) -> bool:
        """Keep a worker for the next run, if it may execute one and there are not enough.

        One whose run has left processes behind is not kept: they end with it.
        """
        if not self._may_keep(kind) or not worker.can_go_on or not await worker.is_alone():
            return False
        if not self._may_keep(kind) or len(self._kept.get(kind, ())) >= self._warm:
            return False
        worker.on_output = lambda _level, _line: None
        self._kept.setdefault(kind, deque()).append((self._env.monotonic(), worker))
        return True

    async def _let_end(
        self, kind: WorkerKind, worker: Worker, escalation: Escalation | None
    ) -> None:
        """End a worker; one that is not done with its entry gets the grace of the escalation.

        One that ends by itself when it is done gets the time to do so.
        """
        if escalation is not None and worker.is_alive:
            worker.signal(signal.SIGTERM)
            await worker.ended_or(escalation.begin_grace())
        elif escalation is None and kind.program.home is None:
            with trio.move_on_after(LAST_OUTPUT):
                await worker.wait()
        await worker.end()

    def _may_keep(self, kind: WorkerKind) -> bool:
        is_current = self._current is None or kind.program in self._current
        return kind.program.home is not None and is_current and self._nursery is not None

    async def let_go(self) -> None:
        """End all workers that are kept for the next run."""
        await self._end_kept(lambda _, _since: True)

    async def _end_the_idle(self, longest: float) -> None:
        await self._end_kept(lambda _, since: since <= longest)

    async def keep_only(self, programs: Collection[Program]) -> None:
        """End workers of other programs: those that wait now, those at work after their run."""
        current = self._current = frozenset(programs)
        await self._end_kept(lambda kind, _: kind.program not in current)

    async def _end_kept(self, is_over: Callable[[WorkerKind, float], bool]) -> None:
        for kind, kept in list(self._kept.items()):
            while kept and is_over(kind, kept[0][0]):
                _, worker = kept.popleft()
                worker.signal(signal.SIGTERM)
                await worker.end()
            if not kept and self._kept.get(kind) is kept:
                del self._kept[kind]


def _not_started(name: str, why: str, *, may_pass: bool) -> PluginError:
    message = f"{name} cannot be started: {why}"
    return PluginError("PLUGIN_NOT_STARTED", message, retriable=may_pass)


def _log(execution: Execution, level: str, line: Line) -> None:
    """Make a log line of what a process has printed."""
    execution.log(level, execution.redactor.beginning(line.text) if line.is_cut else line.text)
