"""Planted bugs around runs. Each is a mistake somebody could make; all of them are found."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn
from unittest import mock

import trio

from perdure.actors.claim import ClaimMade
from perdure.actors.errors import Fenced, Refusal
from perdure.actors.folded import Folded
from perdure.actors.mailbox import Actor
from perdure.actors.run import activation, core, outbox
from perdure.actors.run.core import RUN, Run
from perdure.actors.run.events import RunEvent, StepRecorded
from perdure.actors.run.history import History
from perdure.actors.run.stream import stream_of
from perdure.eventlog.record import START
from perdure.runtime.execution.children import Children
from perdure.runtime.execution.escalation import Escalation
from perdure.runtime.kernel import claims
from perdure.runtime.runs.creation import Creation
from perdure.runtime.secrets.redaction import Redactor
from perdure.runtime.secrets.secrets import Secrets
from tests.actors.activation_rules import A, H, with_edge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.actors.ask import Ask
    from perdure.actors.run.events import RunCreated
    from perdure.eventlog.record import NewEvent
    from perdure.runtime.execution.creator import NewRun
    from perdure.runtime.kernel.principal import Principal
    from perdure.runtime.runs.requests import CreateRun


# Exports


def never_known(self: outbox.Outbox, key: str | None, mark: str) -> tuple[int | None, int]:
    """Recognise no export of an earlier activation."""
    occurrence = self._occurrences[mark] = self._occurrences.get(mark, 0) + 1
    return None, occurrence


def known_by_count(self: outbox.Outbox, key: str | None, mark: str) -> tuple[int | None, int]:
    """Take the n-th export for the n-th recorded one, whatever it is."""
    number = self._occurrences[""] = self._occurrences.get("", 0) + 1
    return (number if number <= self._history.exports else None), number


# Keys


def always_over(claim: ClaimMade, now: int, *, has_ended: bool) -> bool:
    """Keep no claim."""
    return True


async def claim_in_memory(
    self: Creation, _: Principal, request: CreateRun, new: NewRun, created: RunCreated
) -> Folded[Run]:
    """Remember keys, but not in the log."""
    known = self.__dict__.setdefault("known", {})
    async with self._streams._queued(str(request.idempotency_key)):
        if request.idempotency_key in known:
            return await self._runs.look(stream_of(known[request.idempotency_key]))
        known[request.idempotency_key] = created.run_id
        return await self._creator.append(new, created)


_create_once = Creation._create_once


async def answer_from_a_reservation(
    self: Creation, _: Principal, request: CreateRun, new: NewRun, created: RunCreated
) -> Folded[Run]:
    """Tell the second caller of a key what the first has not written yet."""
    reserved = self.__dict__.setdefault("reserved", {})
    if request.idempotency_key in reserved:
        run = RUN.evolve(None, reserved[request.idempotency_key])
        return Folded(run, 1, START, 0, "")
    reserved[request.idempotency_key] = created
    return await _create_once(self, _, request, new, created)


# Deciding


@dataclass(frozen=True)
class Decided:
    """Events that somebody decided on before waiting."""

    events: tuple[RunEvent, ...]


_do, _decide = Actor._do, Actor._decide


async def decide_at_the_door(self: Actor[Run, Any, Any], ask: Ask[Run, Any]) -> Folded[Run]:
    """Check whether the run has ended, and all the rest, before waiting for one's turn."""
    if self.folded is not None and ask.command is not None:
        ask.command = Decided(core.decide(self.folded.state, ask.command))
    return await _do(self, ask)


def as_decided_before(
    self: Actor[Run, Any, Any], state: Run, ask: Ask[Run, Any], events: list[NewEvent]
) -> Run:
    """Write what was decided, without a second thought."""
    if not isinstance(ask.command, Decided):
        return _decide(self, state, ask, events)
    decided = ask.command.events
    with mock.patch.object(self, "_decider", replace(RUN, decide=lambda *_: decided)):
        return _decide(self, state, ask, events)


def charge_without_an_epoch(run: Run, epoch: int, _: object) -> None:
    """Listen to every execution while any is in charge."""
    if not run.active:
        raise Fenced(epoch, run.epoch)


def refuse_at_once(
    self: Actor[Run, Any, Any], state: Run, ask: Ask[Run, Any], events: list[NewEvent]
) -> Run:
    """Refuse before what it rests on is on disk."""
    try:
        return _decide(self, state, ask, events)
    except Refusal as refusal:
        ask.settle(refusal)
        raise


# Stopping


async def never_come(self: Escalation, at: int) -> NoReturn:
    """Wait for the entry, however long it takes."""
    await trio.sleep_forever()


# Leaving


_rest = Actor._rest


def leave_those_who_look(self: Actor[Run, Any, Any]) -> None:
    """Rest although somebody waits, if they only look: nothing that is to be written is lost."""
    if self._mail and all(ask.command is None for ask in self._mail):
        self._mail = None
    _rest(self)


async def leave_children_behind(self: Children, child: Run, parent_id: str) -> Run:
    """Cancel children from memory only."""
    return child


# Steps


_add = History.add


def forget_steps(self: History, event: RunEvent) -> None:
    """Do recorded steps again."""
    if isinstance(event, StepRecorded):
        self.last = event.step
    else:
        _add(self, event)


# Secrets


def learn_nothing(self: Redactor, *values: Any) -> None:
    """Know no secret."""


async def keep(self: Secrets, run_id: str) -> None:
    """Forget no secret."""


Patches = list[tuple[Any, str, Any]]

MUTANTS: dict[str, Patches] = {
    "exports-not-recognised": [(outbox.Outbox, "_known", never_known)],
    "exports-suppressed-by-count": [(outbox.Outbox, "_known", known_by_count)],
    "claims-not-kept": [(claims, "is_over", always_over)],
    "claim-only-in-memory": [(Creation, "_create_once", claim_in_memory)],
    "answer-from-a-reservation": [(Creation, "_create_once", answer_from_a_reservation)],
    "terminal-check-before-an-await": [
        (Actor, "_do", decide_at_the_door),
        (Actor, "_decide", as_decided_before),
    ],
    "zombie-without-the-epoch-check": [(core, "_require_charge", charge_without_an_epoch)],
    "a-fenced-activation-ends-its-run": [
        (activation, "TRANSITIONS", with_edge(A.FENCED, H.RETURN, A.ENDING))
    ],
    "a-drain-ends-its-runs": [
        (activation, "TRANSITIONS", with_edge(A.DRAINING, H.RETURN, A.ENDING))
    ],
    "a-drain-is-not-heard": [
        (activation, "TRANSITIONS", with_edge(A.WORKING, H.DRAIN, A.INTERRUPTED))
    ],
    "deadlines-that-never-come": [(Escalation, "_has_come", never_come)],
    "refusal-before-its-cause": [(Actor, "_decide", refuse_at_once)],
    "looks-left-in-line": [(Actor, "_rest", leave_those_who_look)],
    "children-left-behind": [(Children, "cancel_with_its_parent", leave_children_behind)],
    "recorded-steps-forgotten": [(History, "add", forget_steps)],
    "secrets-not-redacted": [(Redactor, "register", learn_nothing)],
    "secrets-kept": [(Secrets, "drop", keep)],
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant a bug for the length of a block."""
    with ExitStack() as patches:
        for owner, attribute, bug in MUTANTS[name]:
            patches.enter_context(mock.patch.object(owner, attribute, bug))
        yield
