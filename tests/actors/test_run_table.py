"""Every command in every status, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pytest

from perdure.actors.errors import Fenced, NoSuchQuestion, NotNow, Refusal
from perdure.actors.run.commands import Answer, Recover, RequestCancel, RunCommand
from perdure.actors.run.core import RUN
from perdure.actors.run.events import ProgressReported
from perdure.actors.run.status import (
    ENDED,
    OPEN,
    TRANSITIONS,
    CancelMode,
    Move,
    Outcome,
    Status,
    can,
    moved,
)
from tests.actors.given import given
from tests.actors.test_run_core import (
    ACTIVATE,
    ACTIVATE_AGAIN,
    DEACTIVATE,
    HISTORIES,
    SECOND,
    deliver,
    export,
    finish,
)

COMMANDS: dict[str, RunCommand] = {
    "activate": ACTIVATE,
    "activate again": ACTIVATE_AGAIN,
    "deactivate": DEACTIVATE,
    "progress": deliver(ProgressReported(progress=0.5, message=None, at=0)),
    "export": deliver(export()),
    "zombie": deliver(export(), epoch=0),
    "succeed": finish(Outcome.SUCCEEDED),
    "fail": finish(Outcome.FAILED),
    "time out": finish(Outcome.TIMEOUT),
    "end canceled": finish(Outcome.CANCELED),
    "cancel": RequestCancel(by="b", at=4 * SECOND),
    "force": RequestCancel(by="b", at=4 * SECOND, mode=CancelMode.FORCE),
    "answer": Answer(question_id="q", answer=1, by="b", at=4 * SECOND),
    "recover": Recover(resumes=True, compatible=True, at=4 * SECOND),
    "recover lost": Recover(resumes=False, compatible=True, at=4 * SECOND),
}

S = Status
ENDS = (S.SUCCEEDED, S.FAILED, S.CANCELED, S.TIMEOUT)
# The status after each command in each status; an error where it is refused.
AFTER: dict[str, dict[Status, Status | type[Refusal]]] = {
    "activate": {S.QUEUED: S.RUNNING, S.RUNNING: Fenced, S.CANCEL_REQUESTED: NotNow},
    "activate again": {S.QUEUED: Fenced, S.RUNNING: S.RUNNING, S.CANCEL_REQUESTED: NotNow},
    "deactivate": {S.QUEUED: Fenced, S.RUNNING: S.RUNNING, S.CANCEL_REQUESTED: S.CANCEL_REQUESTED},
    "progress": {S.QUEUED: Fenced, S.RUNNING: S.RUNNING, S.CANCEL_REQUESTED: S.CANCEL_REQUESTED},
    "export": {S.QUEUED: Fenced, S.RUNNING: S.RUNNING, S.CANCEL_REQUESTED: S.CANCEL_REQUESTED},
    "zombie": {S.QUEUED: Fenced, S.RUNNING: Fenced, S.CANCEL_REQUESTED: Fenced},
    "succeed": {S.QUEUED: Fenced, S.RUNNING: S.SUCCEEDED, S.CANCEL_REQUESTED: S.SUCCEEDED},
    "fail": {S.QUEUED: Fenced, S.RUNNING: S.FAILED, S.CANCEL_REQUESTED: S.FAILED},
    "time out": {S.QUEUED: Fenced, S.RUNNING: S.TIMEOUT, S.CANCEL_REQUESTED: S.TIMEOUT},
    "end canceled": {S.QUEUED: Fenced, S.RUNNING: S.CANCELED, S.CANCEL_REQUESTED: S.CANCELED},
    "cancel": {
        S.QUEUED: S.CANCELED,
        S.RUNNING: S.CANCEL_REQUESTED,
        S.CANCEL_REQUESTED: S.CANCEL_REQUESTED,
    },
    "force": {
        S.QUEUED: S.CANCELED,
        S.RUNNING: S.CANCEL_REQUESTED,
        S.CANCEL_REQUESTED: S.CANCEL_REQUESTED,
    },
    "answer": {
        S.QUEUED: NoSuchQuestion,
        S.RUNNING: NoSuchQuestion,
        S.CANCEL_REQUESTED: NoSuchQuestion,
    },
    "recover": {S.QUEUED: S.QUEUED, S.RUNNING: S.RUNNING, S.CANCEL_REQUESTED: S.CANCELED},
    "recover lost": {S.QUEUED: S.QUEUED, S.RUNNING: S.FAILED, S.CANCEL_REQUESTED: S.CANCELED},
}
IN_THE_END: dict[str, type[Refusal] | None] = {
    "activate": NotNow,
    "activate again": NotNow,
    "answer": NoSuchQuestion,
    "cancel": None,
    "force": None,
    "recover": None,
    "recover lost": None,
}


@pytest.mark.parametrize(("command", "status"), list(product(COMMANDS, Status)))
def test_every_command_in_every_status(command: str, status: Status) -> None:
    """Each command is allowed or refused in each status as the table says (R10, R11)."""
    scenario = given(RUN, *HISTORIES[status]).when(COMMANDS[command])
    if status.is_terminal:
        error = IN_THE_END.get(command, Fenced)
        if error is None:
            scenario.then()
        else:
            scenario.refused(error)
        return
    expected = AFTER[command][status]
    if isinstance(expected, Status):
        assert scenario.allowed().state.status is expected
    else:
        scenario.refused(expected)


@pytest.mark.parametrize(("before", "after"), list(product(Status, Status)))
def test_only_allowed_moves_are_possible(before: Status, after: Status) -> None:
    """No command leads from one status to another unless the machine has that edge (R10)."""
    reached = set()
    for command in COMMANDS.values():
        scenario = given(RUN, *HISTORIES[before]).when(command)
        if scenario.refusal is None:
            reached.add(scenario.allowed().state.status)
    edges = set(TRANSITIONS[before].values())
    assert (after in reached - {before}) == (after in edges - {before})


def broken_rules(
    table: Mapping[Status, Mapping[Move | Outcome, Status]],
) -> list[tuple[Status, Move | Outcome]]:
    """The edges of a table that break what must hold of every run, whatever the table says."""
    return [
        (before, move)
        for before, edges in table.items()
        for move, after in edges.items()
        if not _keeps_the_rules(before, move, after)
    ]


def _keeps_the_rules(before: Status, move: Move | Outcome, after: Status) -> bool:
    if before.value in ENDED:
        return False  # nothing leads out of an end
    if isinstance(move, Outcome):
        return after is move.status and (before is not S.QUEUED or move is Outcome.CANCELED)
    if before is S.QUEUED:  # it has no entry at work that could report, ask or be asked to stop
        return (move, after) in {(Move.ACTIVATE, S.RUNNING), (Move.CANCEL, S.QUEUED)}
    if before is S.CANCEL_REQUESTED:  # it is not begun again, and nobody answers it any more
        return after is before and move in {Move.WORK, Move.CANCEL}
    return after is (S.CANCEL_REQUESTED if move is Move.CANCEL else S.RUNNING)


def test_no_edge_of_the_machine_breaks_a_rule() -> None:
    """The rules hold, whatever else the table allows (R10)."""
    assert broken_rules(TRANSITIONS) == []


@pytest.mark.parametrize(("before", "move"), list(product(Status, [*Move, *Outcome])))
def test_a_mutant_of_the_machine_is_found(
    before: Status, move: Move | Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An illegal edge that is allowed, wherever it leads, and a legal one that leads elsewhere."""
    for after in set(Status) - {TRANSITIONS[before].get(move)}:
        mutated = {**TRANSITIONS, before: {**TRANSITIONS[before], move: after}}
        monkeypatch.setattr("perdure.actors.run.status.TRANSITIONS", mutated)
        assert can(before, move), "the rules of a run run on the table"
        assert moved(before, move) is after
        assert broken_rules(mutated) == [(before, move)]


def test_a_run_is_open_or_has_ended() -> None:
    """Whoever reads texts finds each status in one of two sets."""
    assert {"queued", "running", "cancel_requested"} == OPEN
    assert {"succeeded", "failed", "canceled", "timeout"} == ENDED
    assert [status.is_terminal for status in Status] == [status in ENDED for status in Status]
