"""What a run can be asked to do. Times are UTC nanoseconds, from Env, by way of the caller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perdure.actors.run.events import Output, RunError
from perdure.actors.run.status import CancelIntent, CancelMode, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Activate:
    """A host is about to call the entry, as activation number ``epoch``.

    ``suspects`` are the runs that may have brought down the host before, as in ``Recover``.
    """

    host: str
    epoch: int
    plugin_version: str
    at: int
    suspects: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Deactivate:
    """A host that drains lets go of the run."""

    epoch: int
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliver:
    """An execution hands over what it has put out."""

    epoch: int
    outputs: tuple[Output, ...]
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """An execution is over: its last outputs and its outcome."""

    epoch: int
    outcome: Outcome
    at: int
    outputs: tuple[Output, ...] = ()
    error: RunError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCancel:
    """Somebody, or the clock, wants the run to end."""

    by: str
    at: int
    intent: CancelIntent = CancelIntent.CANCEL
    mode: CancelMode = CancelMode.COOPERATIVE
    reason: str | None = None
    deadline: int | None = None  # when a harder way follows


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Somebody answers a question of the run."""

    question_id: str
    answer: Any
    by: str
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recover:
    """A host found the run at start-up: whoever executed it before is gone.

    ``resumes`` is the entry's policy; ``compatible`` whether the plugin's version fits;
    ``suspects`` how many runs may have brought that host down, or 0 if this one cannot have. A run
    that is still alive afterwards is to be activated again.
    """

    resumes: bool
    compatible: bool
    at: int
    suspects: int = 0


RunCommand = Activate | Deactivate | Deliver | Finish | RequestCancel | Answer | Recover
