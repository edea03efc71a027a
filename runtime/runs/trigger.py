"""The operation that callers had before there were runs: start an entry, wait, get an envelope.

It creates a run and waits for its end. With the setting ``trigger = "direct"`` the entry is
executed apart instead, on a log in memory that is thrown away, as it was done before: nothing is
recorded, nobody can follow, and what takes longer than the wait is ended. Where callers may choose,
each says which way it wants, so that they can change over one by one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.operations import operation
from perdure.runtime.kernel.principal import Permission, Principal
from perdure.runtime.runs.answers import Envelope, RunAnswer
from perdure.runtime.runs.requests import CreateRun, TriggerEntry, Way

if TYPE_CHECKING:
    from perdure.actors.run.views import ErrorView, ExportItem

Begin = Callable[[Principal, CreateRun], Awaitable[RunAnswer]]
STILL_RUNNING: Final = "STILL_RUNNING"  # the error of an envelope whose run goes on
_CONTENT: Final = ("type", "description", "mime", "metadata")


class Trigger:
    """Starts entries for callers who wait."""

    def __init__(
        self, ways: Mapping[Way, Begin], default: Way, *, callers_choose: bool = False
    ) -> None:
        """Begin runs in the way that is the default, or in the one that a caller wants."""
        self._ways = ways
        self._default = default
        self._callers_choose = callers_choose

    @operation(
        "plugins.trigger",
        Permission.RUN,
        "PLUGIN_NOT_FOUND",
        "ENTRY_NOT_FOUND",
        "IDEMPOTENCY_CONFLICT",
        "CONFLICT",
        "PAYLOAD_TOO_LARGE",
    )
    async def trigger(self, principal: Principal, request: TriggerEntry) -> Envelope:
        """Start an entry, wait for its end, and give the envelope; one that goes on has an id."""
        asked = CreateRun(
            plugin_id=request.plugin_id,
            entry_id=request.entry_id,
            args=request.args,
            task_id=request.task_id,
            trace_id=request.trace_id,
            idempotency_key=request.idempotency_key,
            mode="sync",
        )
        way = self._way(request)
        answer = await self._ways[way](principal, asked)
        run = answer["run"]
        run_id = run["run_id"] if way == "runs" else None
        if "result" not in answer:
            return refusal(_overrun(run_id), run_id)
        if run["error"] is not None:
            return refusal(run["error"], run_id)
        if len(answer["result"]) < len(run["result_refs"]):
            return refusal(_too_large(), run_id)
        return {"ok": True, "data": _data(answer["result"]), "error": None, "run_id": run_id}

    def _way(self, request: TriggerEntry) -> Way:
        if request.via in {None, self._default} or self._callers_choose:
            return request.via or self._default
        raise OperationError(
            "VALIDATION_ERROR",
            f"via: every trigger is {self._default!r} here; trigger_choice lets callers choose",
        )


def refusal(error: ErrorView, run_id: str | None = None) -> Envelope:
    """Give the envelope of what went wrong."""
    return {"ok": False, "data": None, "error": error, "run_id": run_id}


def _overrun(run_id: str | None) -> ErrorView:
    if run_id is None:
        code, message = "TIMEOUT", "the entry took too long and was ended"
    else:
        code, message = STILL_RUNNING, "the run goes on: follow it by its run_id"
    return {"code": code, "message": message, "details": None, "retriable": False}


def _too_large() -> ErrorView:
    message = "the result does not fit into one answer; read what the run has exported"
    return {"code": "PAYLOAD_TOO_LARGE", "message": message, "details": None, "retriable": False}


def _data(result: list[ExportItem]) -> Any:  # noqa: ANN401 - what the entry returned
    """Give the value that an entry returned, or the content of the items that are its result."""
    if not result:
        return None
    if len(result) == 1 and result[0]["type"] == "json":
        return result[0]["json"]
    return [
        {name: value for name, value in item.items() if name in _CONTENT or name == item["type"]}
        for item in result
    ]
