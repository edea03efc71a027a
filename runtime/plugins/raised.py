"""What an entry has raised, as its process and its server tell it. Light."""

from __future__ import annotations

import traceback
from typing import Any

from runtime.plugins.contract import RunCancelled


def is_cancellation(error: BaseException) -> bool:
    """Tell whether an entry obeys a cancel request, also from inside a group."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_cancellation, error.exceptions))
    return isinstance(error, RunCancelled)


def unwrapped(error: BaseException) -> BaseException:
    """Give what a group of one holds."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def told(error: BaseException) -> tuple[str, dict[str, Any] | None]:
    """Give what an error without a code says, and the line that has raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = {"file": last[0].filename.rpartition("/")[2], "line": last[0].lineno} if last else None
    return f"{type(error).__name__}: {error}", where
