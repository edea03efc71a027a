"""Errors on the wire, as the process of an entry says and hears them. Light."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from perdure.runtime.plugins.contract import FailedStep, PluginError, RunCancelled, StepError
from perdure.runtime.plugins.error_text import text_of, told, unwrapped
from perdure.runtime.process.messages import Error

MAX_MESSAGE: Final = 100_000  # characters of an error's message
MAX_DETAILS: Final = 256 << 10  # bytes of its details


def error_of(error: BaseException) -> Error:
    """Give an exception as it is said: whole, since only the server knows what is secret in it."""
    error = unwrapped(error)
    if isinstance(error, PluginError):
        return Error(
            code=text_of(error.code),
            message=sayable(text_of(error.message)),
            details=_details(error.details),
            retriable=bool(error.retriable),
        )
    message, where = told(error)
    return Error(message=sayable(message), details=where)


def value_of(answer: dict[str, Any], cause: Exception | None = None) -> Any:  # noqa: ANN401 - what was asked for
    """Give what was answered to a request, or raise the error; of a step, with its cause."""
    error = answer.get("error")
    if error is None:
        return answer.get("value")
    message = error.get("message", "")
    if answer.get("cancelled"):
        raise RunCancelled(message.removeprefix("RunCancelled: "))
    if answer.get("step") == "misused":
        raise StepError(message.removeprefix("StepError: "))
    kind = FailedStep if answer.get("step") == "failed" else PluginError
    raise kind(
        error.get("code", "PLUGIN_ERROR"),
        message,
        details=error.get("details"),
        retriable=error.get("retriable", False),
    ) from cause


def sayable(text: str) -> str:
    """Give a text that can be said, or why it cannot."""
    if len(text) <= MAX_MESSAGE:
        return text.encode("utf-8", "replace").decode("utf-8")
    return f"its message has {len(text)} characters; at most {MAX_MESSAGE} can be said"


def _details(details: Any) -> dict[str, Any] | None:  # noqa: ANN401 - whatever a plugin put there
    if not isinstance(details, dict):
        return None
    try:
        size = len(msgspec.json.encode(details))
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        return {"dropped": str(error)}
    return details if size <= MAX_DETAILS else {"dropped": f"more than {MAX_DETAILS} bytes"}
