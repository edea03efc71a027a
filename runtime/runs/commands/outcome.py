"""How a run ended, as people read it: the error, where it came from, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.terminal.text import clean, duration, one_line, styled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.actors.run.views import ErrorView, RunRecord
    from perdure.runtime.client.client import Caller
    from perdure.runtime.runs.answers import LogPage

_LAST_LINES: Final = 20  # of the log, among which the traceback is
_SHOWN: Final = 7  # lines of a traceback, from its end; `perdure logs` shows all
_NOT_BY_ITSELF: Final = frozenset({"HOST_LOST", "NOT_READY"})  # retriable, once something is done


async def traceback_of(caller: Caller, run: RunRecord) -> str | None:
    """Read the traceback of a run that has failed, if its log ends with one."""
    if run["status"] != "failed":
        return None
    asked = {"run_id": run["run_id"], "last": _LAST_LINES}
    try:
        page: LogPage = await caller.call("runs.logs", asked)
    except OperationError:  # a server of an earlier release
        return None
    texts = [line["text"] for line in page["lines"] if line["level"] == "error"]
    return next((text for text in reversed(texts) if '\n  File "' in text), None)


def outcome(run: RunRecord, trace: str | None = None) -> Iterator[str]:
    """Yield the outcome of a run, and the commands that may come next."""
    status, error, started, finished = (
        run["status"],
        run["error"],
        run["started_at"],
        run["finished_at"],
    )
    took = duration(finished - started) if started is not None and finished is not None else ""
    mark = {"succeeded": "✓", "failed": "✗"}.get(status, "■")
    yield styled(f"{mark} {status}", status) + (f" in {took}" if took else "")
    if error is None:
        return
    yield f"  {one_line(error['code'])}: {one_line(error['message'])}{_place(error)}"
    if trace is not None:
        for line in clean(trace).splitlines()[-_SHOWN:]:
            yield styled(f"    {line}", "dim")
        yield f"  Its log:   perdure logs {run['run_id']}"
    is_temporary = error["retriable"] and error["code"] not in _NOT_BY_ITSELF
    yield f"  Try again: perdure retry {run['run_id']}" + "  (it may be temporary)" * is_temporary


def _place(error: ErrorView) -> str:
    """Say which line of a plugin an error came from, if it is known."""
    match error["details"]:
        case {"file": str(file), "line": int(line)}:
            return f"  ({one_line(file)}, line {line})"
        case _:
            return ""
