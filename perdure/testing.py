"""Testing entries: run them in memory, in virtual time, and crash them after every step.

    from perdure.testing import run_entry

    def test_my_entry() -> None:
        ran = run_entry(MyPlugin, "import_all", {"url": "..."}, crash_after_every_step=True)
        assert ran.record["status"] == "succeeded"
        assert ran.lives > 1

The entry runs in the real runtime on a log in memory; an hour of sleep takes no time. A crash is a
crash: nothing of the process survives but the log, and the entry is called again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import trio

from perdure.actors.run.events import (
    RUN_EVENTS,
    Answered,
    ChildStarted,
    QuestionAsked,
    SleepBegun,
    StepRecorded,
)
from perdure.actors.run.stream import run_id_of, stream_of
from perdure.actors.run.views import ExportItem, RunRecord
from perdure.eventlog.errors import LogClosed
from perdure.eventlog.filter import Filter
from perdure.eventlog.log import EventLog, open_log
from perdure.eventlog.memory import MemoryStore
from perdure.eventlog.simulation import Dead, SimEnv, simulate
from perdure.eventlog.store import Bounds
from perdure.runtime.blobs.depot import MemoryDepot
from perdure.runtime.blobs.store import BlobStore
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.runs.feature import open_run_node
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import AnswerRun, CreateRun, ExportRun, GetRun
from perdure.runtime.secrets.references import SecretSource, variable_of
from perdure.runtime.secrets.sealed_files import MemorySeals
from perdure.runtime.secrets.secrets import Secrets
from perdure.runtime.secrets.vault import Vault

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from perdure.eventlog.record import Record
    from perdure.runtime.runs.operations import Runs

_STEPS: Final = frozenset(
    event.event_name for event in (StepRecorded, SleepBegun, QuestionAsked, ChildStarted)
)
WEEK: Final = 7 * 24 * 3600.0
_EVERYTHING: Final = Bounds(records=1 << 30, bytes=1 << 40)


class UnansweredQuestion(AssertionError):
    """The entry asks something that the test has no answer to."""

    def __init__(self, step: str, question: object) -> None:
        """Say which."""
        super().__init__(f"{step} asks {question!r}: pass answers={{{step!r}: ...}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What became of a run."""

    record: RunRecord
    items: list[ExportItem]
    lives: int  # how many processes it took


@dataclass(frozen=True, slots=True, kw_only=True)
class _Script:
    """What a test asks for."""

    plugin: type
    entry_id: str
    args: dict[str, Any]
    answers: Mapping[str, Any]
    timeout: float | None
    source: SecretSource


def run_entry(  # noqa: PLR0913 - each is a keyword of its own
    plugin: type,
    entry_id: str,
    args: Mapping[str, Any] | None = None,
    *,
    answers: Mapping[str, Any] | None = None,
    secrets: Mapping[str, str] | None = None,
    timeout: float | None = None,
    crash_after_every_step: bool = False,
    seed: int = 0,
    virtual_seconds: float = WEEK,
) -> Ran:
    """Run an entry to its end, in memory and in virtual time.

    ``answers`` holds the answers to its questions, by the name of the step that asks (``ask-1`` for
    the first one without a name). ``secrets`` holds the values that references lead to, by name.
    """
    script = _Script(
        plugin=plugin,
        entry_id=entry_id,
        args=dict(args or {}),
        answers=answers or {},
        timeout=timeout,
        source=SecretSource({variable_of(name): value for name, value in (secrets or {}).items()}),
    )

    async def main(chance: random.Random) -> Ran:
        store = _Store(crashes=crash_after_every_step)
        lives = 0
        while True:
            lives += 1
            ran = await _live_once(script, store, SimEnv(chance), lives)
            if ran is not None:
                return ran

    return simulate(seed, main, virtual_seconds=virtual_seconds)


class _Store(MemoryStore):
    """A log, and blobs, that survive their process, which may die with every step it records."""

    def __init__(self, *, crashes: bool) -> None:
        super().__init__()
        self._crashes = crashes
        self.blobs = MemoryDepot()
        self.seals = MemorySeals()
        self.env: SimEnv | None = None

    def commit(self, records: Sequence[Record]) -> None:
        super().commit(records)
        recorded = any(record.name in _STEPS for record in records)
        if self._crashes and recorded and self.env is not None:
            self.env.kill()


async def _live_once(script: _Script, store: _Store, env: SimEnv, life: int) -> Ran | None:
    """Be one process, until the run has ended or the process dies."""
    store.env = env
    ran: list[Ran] = []
    blobs = BlobStore(env, store.blobs)
    try:
        async with trio.open_nursery() as process:
            process.start_soon(_end_when_dead, env, process.cancel_scope)
            plugin = declared(script.plugin)
            secrets = Secrets(env, vault=Vault(env, store.seals), source=script.source)
            async with (
                open_log(env, store) as log,
                open_run_node(log, {plugin.id: plugin}, blobs=blobs, secrets=secrets) as node,
                trio.open_nursery() as nursery,
            ):
                part = runs_of(node)
                run_id = await _begin(script, store, part.runs, plugin.id)
                nursery.start_soon(_answer_questions, script, log, part.runs, run_id)
                await part.executor.end_of(run_id)
                ran.append(await _result(part.runs, run_id, life))
                nursery.cancel_scope.cancel()
            process.cancel_scope.cancel()
    except* UnansweredQuestion as unanswered:
        raise _first_of(unanswered) from None
    except* (Dead, LogClosed):
        if not env.died.is_set():
            raise
    return ran[0] if ran and not env.died.is_set() else None


def _first_of(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _end_when_dead(env: SimEnv, scope: trio.CancelScope) -> None:
    await env.died.wait()
    scope.cancel()


async def _begin(script: _Script, store: _Store, runs: Runs, plugin_id: str) -> str:
    """Create the run, or find it if an earlier life has."""
    created = [r for r in store.read_all(0, _EVERYTHING).records if r.name == "run.created"]
    if created:
        return run_id_of(created[0].stream)
    request = CreateRun(
        plugin_id=plugin_id, entry_id=script.entry_id, args=script.args, timeout=script.timeout
    )
    return str((await runs.create(LOCAL, request))["run"]["run_id"])


async def _answer_questions(script: _Script, log: EventLog, runs: Runs, run_id: str) -> None:
    """Answer what the script knows an answer to, as soon as it is asked."""
    of_run = Filter(streams=frozenset({stream_of(run_id)}))
    answered: set[str] = set()
    async for batch in await log.follow(None, of_run):
        for record in batch.records:
            event = RUN_EVENTS.decode(record)
            if isinstance(event, Answered):
                answered.add(event.question_id)
        for record in batch.records:
            event = RUN_EVENTS.decode(record)
            if not isinstance(event, QuestionAsked) or event.question_id in answered:
                continue
            if event.step not in script.answers:
                raise UnansweredQuestion(event.step, event.question)
            answer = AnswerRun(
                run_id=run_id, question_id=event.question_id, answer=script.answers[event.step]
            )
            await runs.answer(LOCAL, answer)


async def _result(runs: Runs, run_id: str, life: int) -> Ran:
    record = (await runs.get(LOCAL, GetRun(run_id=run_id)))["run"]
    items: list[ExportItem] = []
    after = None
    while True:
        page = await runs.export(LOCAL, ExportRun(run_id=run_id, after=after, limit=500))
        items.extend(page["items"])
        after = page["next_after"]
        if after is None:
            return Ran(record=record, items=items, lives=life)
