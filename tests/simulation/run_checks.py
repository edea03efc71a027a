"""What must be true of a world of runs in the end."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from perdure.actors.run.activation import Activation, Happening, advance
from perdure.actors.run.core import RUN, Run
from perdure.actors.run.events import (
    RUN_EVENTS,
    Activated,
    Answered,
    CancelEscalated,
    CancelRequested,
    ChildStarted,
    ExportAppended,
    QuestionAsked,
    RunCreated,
    RunEnded,
    SleepBegun,
    StepRecorded,
)
from perdure.actors.run.status import CancelMode, Outcome
from perdure.actors.run.stream import stream_of
from perdure.actors.run.views import record
from perdure.eventlog.cursor import parse_cursor
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.runs.requests import GetRun
from tests.actors.activation_rules import broken_rules
from tests.runtime.secrets import canary
from tests.simulation.run_clients import ALL, all_runs, events_of, get, open_runs, tidy_up
from tests.simulation.run_plugin import BODIES, REPEATED, TRIES
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.run_world import RunWorld

Event = TypeVar("Event")


# While the server still lives


def checked_advance(state: Activation, happening: Happening) -> Activation:
    """Take a step in the life of an activation that breaks none of its rules."""
    after = advance(state, happening)
    if broken := broken_rules(state, happening, after):
        raise Violation(f"{state.name} + {happening.name} -> {after.name}: {broken[0]}")
    return after


async def let_all_end(world: RunWorld) -> None:
    """Every run ends, and with it whatever executed it; nothing works for ever."""
    for _ in range(50):
        await tidy_up(world)
        if world.executor is not None and not world.executor.running and not open_runs(world):
            return
        await trio.sleep(2)
    left = open_runs(world)
    raise Violation(f"{left} do not end" if left else "an execution does not end")


async def check_live_state(world: RunWorld) -> None:
    """What the server says of a run, now and of the past, is what the log says."""
    for run_id in sorted(world.accepted):
        await get(world, run_id)
        cursor, said = world.chance.choice(world.answers[run_id])
        request = GetRun(run_id=run_id, at=cursor)
        again = await world.call(
            lambda server, r=request: server.get(LOCAL, r),  # type: ignore[misc]
            of_the_past=True,
        )
        if (again["run"], again["cursor"]) != (said, cursor):
            raise Violation("a run, read at the place of an answer, is not what the answer said")


async def let_secrets_go(world: RunWorld) -> None:
    """They are forgotten soon after the end, or when the server is started again."""
    for _ in range(60):
        if not world.seals.sealed:
            return
        await trio.sleep(1)
    raise Violation(f"secrets are kept for ever: {list(world.seals.sealed)}")


# Afterwards


def check_log(world: RunWorld) -> None:
    """Check what can be read off the log, and compare it with what clients were told."""
    runs = {run_id: events_of(world, run_id) for run_id in all_runs(world)}
    if leaks := canary.in_log(world.disk):
        raise Violation(f"a secret is in the log: {leaks}")
    if missing := world.accepted - runs.keys():
        raise Violation(f"acknowledged runs are lost: {missing}")
    for run_id, events in runs.items():
        check_life(run_id, events)
        check_stops(run_id, events)
        check_questions(world, run_id, events)
        check_exports(events)
        check_answers(world, run_id)
    check_origins(runs)
    if REPEATED:
        raise Violation(f"{REPEATED[0]} was done again although it was recorded")
    for step, times in BODIES.items():
        activations = len(only(Activated, runs[step.partition("/")[0]]))
        if times > TRIES * activations:
            raise Violation(f"{step} was begun {times} times in {activations} activations")


def only(kind: type[Event], events: Iterable[Any]) -> list[Event]:
    """Give the events of a kind."""
    return [event for event in events if isinstance(event, kind)]


def no_two(what: str, names: Iterable[Any]) -> None:
    """Refuse a name that occurs twice."""
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise Violation(f"{what} is there twice: {twice}")


def check_life(run_id: str, events: list[Any]) -> None:
    """A run has one end and nothing after it; what happens once has happened once."""
    if len(only(RunEnded, events)) != 1:
        raise Violation(f"{run_id} has not exactly one end")
    if not isinstance(events[-1], RunEnded):
        raise Violation(f"something follows the end of {run_id}")
    epochs = [event.epoch for event in only(Activated, events)]
    if epochs != list(range(1, len(epochs) + 1)):
        raise Violation(f"activations of {run_id}: {epochs}")
    no_two("a cancel request", (run_id for _ in only(CancelRequested, events)))
    no_two("a step", (event.step for event in only(StepRecorded, events)))
    no_two("a sleep", (event.step for event in only(SleepBegun, events)))
    if succeeded(events) and any(s.until > events[-1].at for s in only(SleepBegun, events)):
        raise Violation(f"{run_id} succeeded in its sleep")


def check_stops(run_id: str, events: list[Any]) -> None:
    """What was canceled was asked to end, what is out of time was; no grace was cut short."""
    created, end = events[0], events[-1]
    requests = only(CancelRequested, events)
    if end.outcome is Outcome.CANCELED and not requests:
        raise Violation(f"{run_id} was canceled by nobody")
    if end.outcome is Outcome.TIMEOUT:
        started = only(Activated, events)[0].at
        if created.timeout is None or end.at < started + round(created.timeout * 1e9):
            raise Violation(f"{run_id} ended in timeout before its time was up")
    for escalated in only(CancelEscalated, events):
        mine = escalated.mode is CancelMode.INTERRUPT and created.started_by is None
        if mine and escalated.at < (requests[0].deadline or 0):
            raise Violation(f"{run_id} was interrupted before the deadline of its cancel request")


def succeeded(events: list[Any]) -> bool:
    """Tell whether a run succeeded."""
    return bool(events[-1].outcome is Outcome.SUCCEEDED)


def check_questions(world: RunWorld, run_id: str, events: list[Any]) -> None:
    """A question is asked once and answered once, and everybody knows the same answer."""
    asked = {event.step: event.question_id for event in only(QuestionAsked, events)}
    no_two("a question", (event.step for event in only(QuestionAsked, events)))
    no_two("an answer", (event.question_id for event in only(Answered, events)))
    answers = {event.question_id: event.answer for event in only(Answered, events)}
    for (of_run, question_id), told in world.told.items():
        if of_run == run_id and answers.get(question_id) != told:
            raise Violation("an answer was accepted and is not there")
    for item in only(ExportAppended, events):
        if item.key is not None and item.key.startswith("heard-"):
            question_id = asked[item.key.replace("heard-", "q")]
            if item.json != {"heard": answers.get(question_id)}:
                raise Violation("an entry heard another answer than was given")
    if events[0].entry_id == "wonder" and succeeded(events):
        (returned,) = (item.json for item in only(ExportAppended, events) if item.key is None)
        if returned != [answers[asked[f"q{n}"]] for n in range(events[0].args["questions"])]:
            raise Violation("an entry returned other answers than were given")


def check_exports(events: list[Any]) -> None:
    """Each export is there once, whatever happened in between."""
    items, created = only(ExportAppended, events), events[0]
    if [item.number for item in items] != list(range(1, len(items) + 1)):
        raise Violation("export items are not numbered one by one")
    if created.entry_id != "work" or not succeeded(events):
        return
    steps = created.args["steps"]
    said = Counter(item.text for item in items if item.text)
    wanted = Counter({f"aside {n}": 1 for n in range(steps)})
    wanted |= Counter({"begun with [redacted]": 1, "again": steps})
    if said != +wanted:
        raise Violation(f"exports of {created.run_id}: {said}, not {wanted}")


def check_origins(runs: dict[str, list[Any]]) -> None:
    """Each run stands for one key, one attempt or one child, and each of those for one run."""
    created: list[RunCreated] = [events[0] for events in runs.values()]
    no_two("a key", (run.idempotency_key for run in created if run.idempotency_key))
    no_two("an attempt", ((run.root_run_id, run.attempt) for run in created))
    started = [
        (parent, event.step, event.child_run_id)
        for parent, events in runs.items()
        for event in only(ChildStarted, events)
    ]
    no_two("a child's name", ((parent, step) for parent, step, _ in started))
    orphans = [
        run.run_id for run in created if not run.idempotency_key and run.parent_run_id is None
    ]
    if sorted(child for _, _, child in started) != sorted(orphans):
        raise Violation("children in their parents' words are not the children that exist")


def check_answers(world: RunWorld, run_id: str) -> None:
    """Every answer about a run is the fold of the log up to the answer's cursor."""
    stored = iter(world.disk.read_stream(stream_of(run_id), 0, ALL).records)
    upcoming = next(stored, None)
    run: Run | None = None
    commit_time = 0
    answers = sorted(
        (parse_cursor(cursor).position, number, said)
        for number, (cursor, said) in enumerate(world.answers.get(run_id, []))
    )
    for position, at_once in groupby(answers, key=lambda answer: answer[0]):
        while upcoming is not None and upcoming.position <= position:
            run, commit_time = RUN.evolve(run, RUN_EVENTS.decode(upcoming)), upcoming.commit_time
            upcoming = next(stored, None)
        for _, _, said in at_once:
            if run is None or said != record(run, commit_time):
                raise Violation("an answer is not what the log says at its cursor")
