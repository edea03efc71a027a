"""How an entry ends: from what it returned or raised to an outcome and an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from perdure.actors.errors import Invalid
from perdure.actors.run.events import RunError
from perdure.actors.run.output import readable
from perdure.actors.run.status import Outcome
from perdure.eventlog import cbor
from perdure.eventlog.errors import CodecError
from perdure.runtime.kernel.errors import OperationError, translated
from perdure.runtime.plugins.contract import PluginError
from perdure.runtime.plugins.error_text import text_of, told, unwrapped
from perdure.runtime.secrets.redaction import Redactor

PLUGIN_ERROR: Final = "PLUGIN_ERROR"  # of what is raised without a code
MAX_CODE: Final = 200
MAX_MESSAGE: Final = 2000
MAX_DETAILS: Final = 64 << 10
_NO_SECRETS: Final = Redactor()


@dataclass(frozen=True, slots=True)
class Ending:
    """An outcome, and why it is not success."""

    outcome: Outcome
    error: RunError | None = None


SUCCESS: Final = Ending(Outcome.SUCCEEDED)


def ending_of_value(
    value: Any,  # noqa: ANN401 - whatever it is
    *,
    is_result: bool,
    redactor: Redactor = _NO_SECRETS,
) -> Ending:
    """Give the ending of an entry that returned: an error envelope is a failure.

    A value that is to be the run's result must be one that can be recorded.
    """
    if isinstance(value, dict) and value.get("ok") is False and "error" in value:
        return Ending(Outcome.FAILED, _envelope_error(value["error"], redactor))
    try:
        if is_result:
            cbor.check(value)
    except CodecError as error:
        text = redactor.text(f"the value that the entry returned cannot be recorded: {error}")
        return Ending(Outcome.FAILED, RunError(code=PLUGIN_ERROR, message=text))
    return SUCCESS


def error_of(error: BaseException, redactor: Redactor = _NO_SECRETS) -> RunError:
    """Turn an exception of an entry into the error of its run, without the run's secrets."""
    error = unwrapped(error)
    if isinstance(error, PluginError):
        said = (error.code, error.message, error.details)
        return _sound(*said, redactor=redactor, retriable=error.retriable)
    if isinstance(error, Invalid | OperationError):
        refused = translated(error)
        details = error.details if isinstance(error, OperationError) else None
        return _sound(refused.code, refused.message, details, redactor=redactor)
    message, where = told(error)
    return _sound(PLUGIN_ERROR, message, where, redactor=redactor)


def _sound(
    code: object, message: object, details: object, *, redactor: Redactor, retriable: bool = False
) -> RunError:
    """Make an error that can be stored, whatever a plugin has put into it.

    It is cut only after it was redacted.
    """
    kept = redactor.value(details) if isinstance(details, dict) else None
    try:
        if kept is not None and len(cbor.encode(kept)) > MAX_DETAILS:
            kept = {"dropped": f"more than {MAX_DETAILS} bytes"}
    except CodecError as error:
        kept = {"dropped": redactor.text(str(error))}
    return RunError(
        code=redactor.text(readable(text_of(code), "a code"))[:MAX_CODE],
        message=redactor.text(readable(text_of(message), "a message"))[:MAX_MESSAGE],
        details=kept,
        retriable=bool(retriable),
    )


def _envelope_error(error: Any, redactor: Redactor) -> RunError:  # noqa: ANN401 - whatever it is
    if not isinstance(error, dict):
        return _sound(PLUGIN_ERROR, error, None, redactor=redactor)
    return _sound(
        error.get("code", PLUGIN_ERROR),
        error.get("message", ""),
        error.get("details"),
        redactor=redactor,
        retriable=error.get("retriable") is True,
    )
