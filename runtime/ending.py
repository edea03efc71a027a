"""How an entry ends: from what it returned or raised to an outcome and an error."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any, Final

from actors.errors import Invalid
from actors.run.events import RunError
from actors.run.output import readable
from actors.run.status import Outcome
from eventlog import cbor
from eventlog.errors import CodecError
from runtime.contract import PluginError, RunCancelled
from runtime.errors import translated

MAX_CODE: Final = 200
MAX_MESSAGE: Final = 2000
MAX_DETAILS: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class Ending:
    """An outcome, and why it is not success."""

    outcome: Outcome
    error: RunError | None = None


SUCCESS: Final = Ending(Outcome.SUCCEEDED)


def ending_of_value(value: Any, *, is_result: bool) -> Ending:  # noqa: ANN401 - whatever it is
    """Give the ending of an entry that returned: an error envelope is a failure.

    A value that is to be the run's result must be one that can be recorded.
    """
    if isinstance(value, dict) and value.get("ok") is False and "error" in value:
        return Ending(Outcome.FAILED, _envelope_error(value["error"]))
    try:
        if is_result:
            cbor.check(value)
    except CodecError as error:
        text = f"the value that the entry returned cannot be recorded: {error}"
        return Ending(Outcome.FAILED, RunError(code="PLUGIN_ERROR", message=text))
    return SUCCESS


def is_cancellation(error: BaseException) -> bool:
    """Tell whether an entry obeys a cancel request, also from inside a group."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_cancellation, error.exceptions))
    return isinstance(error, RunCancelled)


def error_of(error: BaseException) -> RunError:
    """Turn an exception of an entry into the error of its run."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, PluginError):
        return _sound(error.code, error.message, error.details, retriable=error.retriable)
    if isinstance(error, Invalid):
        refused = translated(error)
        return RunError(code=refused.code, message=refused.message)
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = {"file": last[0].filename.rpartition("/")[2], "line": last[0].lineno} if last else None
    return _sound("PLUGIN_ERROR", f"{type(error).__name__}: {error}", where)


def _sound(code: object, message: object, details: object, *, retriable: bool = False) -> RunError:
    """Make an error that can be stored, whatever a plugin has put into it."""
    kept = details if isinstance(details, dict) else None
    try:
        if kept is not None and len(cbor.encode(kept)) > MAX_DETAILS:
            kept = {"dropped": f"more than {MAX_DETAILS} bytes"}
    except CodecError as error:
        kept = {"dropped": str(error)}
    return RunError(
        code=readable(str(code), "a code")[:MAX_CODE],
        message=readable(str(message), "a message")[:MAX_MESSAGE],
        details=kept,
        retriable=bool(retriable),
    )


def _envelope_error(error: Any) -> RunError:  # noqa: ANN401 - whatever a plugin put there
    if not isinstance(error, dict):
        return _sound("PLUGIN_ERROR", error, None)
    return _sound(
        error.get("code", "PLUGIN_ERROR"),
        error.get("message", ""),
        error.get("details"),
        retriable=error.get("retriable") is True,
    )
