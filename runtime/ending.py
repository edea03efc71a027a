"""How an entry ends: from what it returned or raised to an outcome and an error."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any, Final

from actors.errors import Invalid
from actors.run.events import RunError
from actors.run.status import Outcome
from eventlog import cbor
from eventlog.errors import CodecError
from runtime.contract import PluginError, RunCancelled
from runtime.errors import translated

MAX_MESSAGE: Final = 2000


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
        return RunError(
            code=error.code,
            message=error.message,
            details=error.details,
            retriable=error.retriable,
        )
    if isinstance(error, Invalid):
        refused = translated(error)
        return RunError(code=refused.code, message=refused.message)
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = {"file": last[0].filename.rpartition("/")[2], "line": last[0].lineno} if last else {}
    return RunError(
        code="PLUGIN_ERROR",
        message=f"{type(error).__name__}: {error}"[:MAX_MESSAGE],
        details=where or None,
    )


def _envelope_error(error: Any) -> RunError:  # noqa: ANN401 - whatever a plugin put there
    if not isinstance(error, dict):
        return RunError(code="PLUGIN_ERROR", message=str(error))
    details = error.get("details")
    return RunError(
        code=str(error.get("code", "PLUGIN_ERROR")),
        message=str(error.get("message", "")),
        details=details if isinstance(details, dict) else None,
        retriable=error.get("retriable") is True,
    )
