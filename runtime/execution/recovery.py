"""Recovery is start-up: an executor takes up what one that is gone has left.

Queued runs are dispatched again. What was asked to end has ended; what is past its deadline has
timed out; everything else goes on from what it recorded, or is lost, as its entry says. The rules
are the run's own (``Recover``); here is only the reading and the asking.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import trio

from perdure.actors.errors import Crashed
from perdure.actors.folding import fold_events
from perdure.actors.run.commands import Recover
from perdure.actors.run.core import RUN
from perdure.actors.run.crashes import is_suspect
from perdure.actors.run.events import RUN_EVENTS
from perdure.actors.run.history import History
from perdure.actors.run.stream import stream_of
from perdure.eventlog.errors import UnreadableRecord
from perdure.runtime.secrets.logged_run import about_run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from perdure.actors.run.core import Run
    from perdure.eventlog.log import EventLog
    from perdure.eventlog.record import Mark
    from perdure.runtime.execution.executor import Executor

    OpenRuns = Callable[[int], Awaitable[Sequence["OpenRun"]]]  # a page after a position

AT_ONCE: Final = 128  # runs asked at once: less than MAX_MAIL, since all may ask one parent
SHORT: Final = 50  # records; most runs that are taken up have just begun
_log = logging.getLogger("perdure.recovery")


class OpenRun(Protocol):
    """A run that has not ended, as a list has it."""

    @property
    def run_id(self) -> str:
        """Its id."""

    @property
    def position(self) -> int:
        """Where in the log it was created."""


async def recover(
    executor: Executor,
    open_runs: OpenRuns,
    upto: Mark,
    progress: Callable[[int], None] = lambda _runs: None,
) -> int:
    """Take up runs that have not ended; give how many will be executed again.

    Runs created after a place, as children of runs just taken up are, have their host: this one.
    ``progress`` hears how many more were judged.
    """
    taken = position = 0
    while page := await open_runs(position):
        run_ids = [listed.run_id for listed in page if listed.position <= upto.position]
        histories = await _read_short_ones(executor, run_ids)
        for run in await _going_on(executor, run_ids):
            run_id = run.created.run_id
            if run_id in histories:
                executor.remember(run_id, histories[run_id])
            executor.dispatch(run_id, run.created.plugin_id)
            taken += 1
        position = page[-1].position
        progress(len(page))
    return taken


async def take_up(executor: Executor, run_id: str) -> None:
    """Take up one run and what it has started, and nothing else."""
    _suspect(executor, await _look(executor, run_id))
    run = await _judged(executor, run_id, {})
    if run is not None:
        executor.dispatch(run_id, run.created.plugin_id)
    for child in (await executor.runs.look(stream_of(run_id))).state.children:
        await take_up(executor, child)


async def drop_old_seals(executor: Executor) -> None:
    """Forget secrets of runs that have ended, or that never came into being."""
    sealed = await executor.context.secrets.run_ids()

    def is_over(run_id: str) -> bool:
        with suppress(UnreadableRecord):
            state = executor.context.log.store.stream_state(stream_of(run_id))
            return state.sealed or not state.version
        return False

    def over() -> list[str]:
        return [run_id for run_id in sealed if is_over(run_id)]

    if sealed:
        for run_id in await executor.context.log.in_thread(over):
            await executor.context.secrets.drop(run_id)


async def _read_short_ones(executor: Executor, run_ids: Sequence[str]) -> dict[str, History]:
    """Read many short streams in one go, and give what was recorded in them.

    Long ones, and what cannot be read, are left alone.
    """
    histories = {}
    pages = await executor.context.log.read_streams(
        [stream_of(run_id) for run_id in run_ids], limit=SHORT
    )
    for run_id, page in zip(run_ids, pages, strict=True):
        if page is None or page.more or not page.records:
            continue
        with suppress(UnreadableRecord):
            events = [RUN_EVENTS.decode(record) for record in page.records]
            executor.runs.plant(stream_of(run_id), fold_events(RUN, events, page.records[-1]))
            history = History()
            for event in events:
                history.add(event)
            histories[run_id] = history
    return histories


async def _going_on(executor: Executor, run_ids: Sequence[str]) -> list[Run]:
    """End the runs that cannot go on; give the others, in their order.

    Their ends share commits. Each is an append of its own: whatever a crash leaves undone, the
    next start does. Before one is judged, all suspects so far are counted: most of them are among
    the oldest, so a later page changes little.
    """
    found = await _of_each(run_ids, partial(_look, executor))
    for run in found.values():
        _suspect(executor, run)
    judged = {run_id: trio.Event() for run_id in found}

    async def judge(run_id: str) -> Run | None:
        try:
            return await _judged(executor, run_id, judged)
        finally:
            judged[run_id].set()

    return list((await _of_each(list(found), judge)).values())


async def _of_each(
    run_ids: Sequence[str], ask: Callable[[str], Awaitable[Run | None]]
) -> dict[str, Run]:
    """Ask about many runs at once; give those that there are, in their order."""
    given: dict[str, Run] = {}
    failures: list[Exception] = []
    waiting = iter(run_ids)  # each is taken by one of the tasks, oldest first

    async def work() -> None:
        for run_id in waiting:
            try:
                run = await ask(run_id)
                if run is not None:
                    given[run_id] = run
            except (Crashed, UnreadableRecord):  # logged by the registry, with its cause
                with about_run(run_id):
                    _log.error("run %s cannot be taken up; it is left as it is", run_id)
            except Exception as error:  # noqa: BLE001 - the first is raised, outside of the nursery
                failures.append(error)
                nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for _ in range(min(AT_ONCE, len(run_ids))):
            nursery.start_soon(work)
    if failures:
        raise failures[0]
    return {run_id: given[run_id] for run_id in run_ids if run_id in given}


async def _look(executor: Executor, run_id: str) -> Run:
    stream = stream_of(run_id)
    return (executor.runs.peek(stream) or await executor.runs.look(stream)).state


def _suspect(executor: Executor, run: Run) -> None:
    """Count a run among those that may have brought their host down, if it is one."""
    executor.suspects[run.host] += _may_have_lost_its_host(executor, run)


def suspects_with(executor: Executor, run: Run) -> int:
    """Give how many runs may have brought down the host of a run; 0 if it cannot have."""
    return executor.suspects[run.host] if _may_have_lost_its_host(executor, run) else 0


def _may_have_lost_its_host(executor: Executor, run: Run) -> bool:
    return is_suspect(run) and executor.context.entries.is_in_host(run)


async def _judged(executor: Executor, run_id: str, judged: Mapping[str, trio.Event]) -> Run | None:
    """Give a run that goes on; end it if it cannot.

    A parent takes its children along, so a run is judged after its parent, which is older.
    """
    run = await _look(executor, run_id)
    parent = run.created.started_by
    if parent is not None:
        if parent in judged:
            await judged[parent].wait()
        run = await executor.children.cancel_with_its_parent(run, parent)
    return None if run.status.is_terminal or await ends_instead(executor, run) else run


async def ends_instead(executor: Executor, run: Run) -> bool:
    """End a run that cannot go on with the plugin that is loaded, or not at all; tell if it has."""
    command = Recover(
        resumes=executor.context.entries.resumes(run),
        compatible=executor.context.entries.is_compatible(run),
        suspects=suspects_with(executor, run),
        at=executor.context.env.now(),
    )
    if not RUN.decide(run, command):
        return False
    return (await executor.ask(run.created.run_id, command)).state.status.is_terminal


async def read_history(log: EventLog, run_id: str) -> History:
    """Read all that earlier activations of a run have recorded."""
    history, version = History(), 0
    while True:
        page = await log.read_stream(stream_of(run_id), after=version)
        for record in page.records:
            history.add(RUN_EVENTS.decode(record))
            version = record.version
        if not page.more:
            return history
