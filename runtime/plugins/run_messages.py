"""What an entry says of its run: reports, and requests that are answered. Light.

There is one set of them, wherever an entry runs. ``ctx.run`` makes one for each call, the ports
carry it, and a process writes it as a line (``perdure.runtime.process.messages`` has the wire).
``checked`` refuses at the call what is wrong in itself; a port gets only what was checked. How long
a text may be is not checked here: it is cut or refused only after secrets were taken out of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, Final, Self

import msgspec

from perdure.actors.run.item_id import item_number
from perdure.actors.run.report_bounds import progress_fault, text_fault
from perdure.runtime.plugins.byte_source import Piece
from perdure.runtime.plugins.contract import ONCE, PluginError, Retry, StepError

MAX_NAME: Final = 500  # characters of a step's name
LONGEST_WAIT: Final = 6_000_000_000  # seconds; more ends after the last instant that can be stored
EXPORT_TYPES: Final = ("text", "url", "binary_url", "binary", "json", "id")


class RunMessage(
    msgspec.Struct, kw_only=True, tag_field="say", forbid_unknown_fields=True, omit_defaults=True
):
    """Whatever an entry says, it says about its own run; naming it is optional."""

    run_id: str | None = None

    def checked(self) -> Self:
        """Give the message as it is meant, or refuse it."""
        self._check()
        return self

    def _check(self) -> None:
        """Refuse what is wrong in itself."""


class Progress(RunMessage, tag="progress"):
    """How far the work is."""

    progress: float
    message: str | None = None

    def _check(self) -> None:
        _refuse(progress_fault(self.progress))
        _check_text(self.message, "a message")


class Stage(RunMessage, tag="status"):
    """What the work is doing."""

    stage: str
    message: str | None = None

    def _check(self) -> None:
        _refuse(text_fault(self.stage, "a stage"))
        _check_text(self.message, "a message")


class Log(RunMessage, tag="log"):
    """A line for the run's log."""

    text: str
    level: str = "info"

    def _check(self) -> None:
        _refuse(text_fault(self.text, "a log line") or text_fault(self.level, "a level"))


class Result(RunMessage, tag="result"):
    """These items are the result."""

    items: list[str]

    def numbers(self, run_id: str) -> tuple[int, ...]:
        """Give the numbers of the items; refuse one that is not of this run."""
        return tuple(_number(item, run_id) for item in self.items)


class Request(RunMessage, kw_only=True):
    """What is answered. On the wire it has a number, which the answer repeats."""

    id: int | None = None

    @property
    def number(self) -> int:
        """Its number on the wire, where each has one."""
        assert self.id is not None  # noqa: S101 - the parser refuses one without
        return self.id


class _Item(Request, kw_only=True):
    """An output, and what is said about it."""

    description: str | None = None
    key: str | None = None
    mime: str | None = None
    metadata: dict[str, Any] | None = None

    def _check(self) -> None:
        _check_text(self.description, "a description")
        _check_text(self.mime, "a MIME type")
        if self.key is not None and (not isinstance(self.key, str) or not self.key):
            _refuse("an export's key is a text that is not empty")
        self.metadata = _mapping(self.metadata, "the metadata of an export")


class Export(_Item, tag="export"):
    """An output; answered with the item's id. ``content`` of a binary is bytes, or base64."""

    type: str
    content: Any

    def _check(self) -> None:
        if self.type not in EXPORT_TYPES:
            _refuse(f"an export is one of {', '.join(EXPORT_TYPES)}, not {self.type!r}")
        if self.type == "binary" and isinstance(self.content, Piece):
            self.content = bytes(self.content)
        elif self.type != "json" and not isinstance(self.content, str):
            _refuse(f"an export of type {self.type} holds a text")
        super()._check()


class Bytes(_Item, tag="bytes"):
    """An output of any size, whose bytes are brought piece by piece."""


class RetryRule(
    msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, frozen=True
):
    """How often a step is tried, and how long it waits between two tries.

    After which errors is known only where they are raised.
    """

    tries: int = 1
    delay: float = 1.0
    factor: float = 2.0
    longest: float = 300.0
    jitter: float = 0.0

    def delay_after(self, failed: int, chance: float = 0.0) -> float | None:
        """Seconds to wait after so many failed tries; None when it is enough."""
        return Retry(**msgspec.structs.asdict(self)).delay_after(failed, chance)


_ONCE: Final = RetryRule()


class Step(Request, tag="step"):
    """A durable step: its function is called as often as needed; answered with its value."""

    name: str
    retry: RetryRule = _ONCE

    def _check(self) -> None:
        _check_name(self.name)
        if self.retry is not _ONCE:
            _check_rule(self.retry)


class _Wait(Request, kw_only=True):
    """A durable step that does its work itself; without a name it gets one."""

    name: str | None = None

    def _check(self) -> None:
        if self.name is not None and self.name != "":
            _check_name(self.name)


class Sleep(_Wait, tag="sleep"):
    """Sleep, through restarts; answered when it is over."""

    seconds: float

    def _check(self) -> None:
        _check_number(self.seconds, "a sleep")
        super()._check()


class Ask(_Wait, tag="ask"):
    """A question to people or programs outside; answered with their answer."""

    question: Any


class Start(_Wait, tag="start"):
    """Start another run; answered with its id."""

    plugin_id: str
    entry_id: str
    args: dict[str, Any] = {}

    def _check(self) -> None:
        _refuse(text_fault(self.plugin_id, "the id of a plugin"))
        _refuse(text_fault(self.entry_id, "the id of an entry"))
        self.args = _mapping(self.args, "the arguments of a run") or {}
        super()._check()


Report = Progress | Stage | Log | Result
Call = Export | Sleep | Ask | Start  # a request that is answered once, with one value
FromEntry = Report | Call | Bytes | Step


def rule_of(retry: Any) -> RetryRule:  # noqa: ANN401 - a Retry, or it is refused
    """Give an author's rule as it is said."""
    if retry is ONCE:
        return _ONCE
    if not isinstance(retry, Retry):
        _refuse(f"the rule of a step's tries is a Retry, not a {type(retry).__name__}")
    kinds = retry.on if isinstance(retry.on, tuple) else (retry.on,)
    if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
        _refuse("a step is tried again on a class of exceptions, or on a tuple of such classes")
    if retry.tries == 1:
        return _ONCE
    return RetryRule(**{part: getattr(retry, part) for part in RetryRule.__struct_fields__})


def checked_limit(seconds: float | None) -> float | None:
    """Give the time limit of a step, or refuse it."""
    if seconds is not None:
        _check_number(seconds, "the time limit of a step")
        if seconds <= 0:
            _refuse("the time limit of a step is more than 0 seconds")
    return seconds


def refuse_limit(seconds: float | None) -> None:
    """Refuse a time limit where a step cannot be stopped."""
    if seconds is not None:
        _refuse(
            "a plain function cannot be stopped, so its steps have no time limit: pass one to what"
            " the step calls, or make the entry `async def`"
        )


def _number(item: str, run_id: str) -> int:
    named = item_number(item) if isinstance(item, str) else None
    if named is None or named[0] != run_id:
        raise PluginError("VALIDATION_ERROR", f"{item!r} is not an export of this run")
    return named[1]


def _refuse(fault: str | None) -> None:
    if fault is not None:
        raise PluginError("VALIDATION_ERROR", fault)


def _check_text(text: str | None, what: str) -> None:
    if text is not None:
        _refuse(text_fault(text, what))


def _check_name(name: Any) -> None:  # noqa: ANN401 - whatever it is
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
        raise StepError(f"the name of a step is a text of 1 to {MAX_NAME} characters")


def _mapping(value: Any, what: str) -> dict[str, Any] | None:  # noqa: ANN401 - whatever it is
    if value is None or type(value) is dict:
        return value
    if not isinstance(value, Mapping):
        _refuse(f"{what} is a mapping, not a {type(value).__name__}")
    return dict(value)


def _check_number(number: Any, what: str) -> None:  # noqa: ANN401 - whatever it is
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not is_number or not -inf < number <= LONGEST_WAIT:  # which NaN is not
        _refuse(f"{what} is a number of seconds up to {LONGEST_WAIT}, not {number!r}")


def _check_rule(rule: RetryRule) -> None:
    if type(rule.tries) is not int or rule.tries < 1:
        _refuse("a step is tried at least once")
    for number in (rule.delay, rule.factor, rule.longest):
        _check_number(number, "the wait between two tries")
    if isinstance(rule.jitter, bool) or not isinstance(rule.jitter, int | float):
        _refuse(f"the jitter of a step's tries is a number, not a {type(rule.jitter).__name__}")
    if not 0 <= rule.jitter <= 1:
        _refuse(f"the jitter of a step's tries is from 0 to 1, not {rule.jitter!r}")
