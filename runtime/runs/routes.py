"""Where each operation on runs is, over HTTP. The first routes are asked for most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from perdure.runtime.kernel.operations import operations_of
from perdure.runtime.kernel.routes.operation_route import operation_route
from perdure.runtime.runs import examples
from perdure.runtime.runs.answers import RunAnswer
from perdure.runtime.runs.blob_routes import RECEIVING, SENDING
from perdure.runtime.runs.bulk import Bulk
from perdure.runtime.runs.operations import Runs
from perdure.runtime.runs.plugin_list import PluginList
from perdure.runtime.runs.reading_route import READING
from perdure.runtime.runs.replies import (
    RunBody,
    begun_reply,
    envelope_reply,
    refused_envelope,
    run_reply,
    upload_reply,
)
from perdure.runtime.runs.trigger import Trigger
from perdure.runtime.runs.uploads import Uploads

if TYPE_CHECKING:
    from perdure.runtime.kernel.routes.route import Route

_OPERATIONS: Final = operations_of(Runs, Bulk, PluginList, Uploads, Trigger)
_LOCATION: Final = {"Location": "the address of the run"}


def _asking(method: str, path: str, name: str, **more: Any) -> Route:
    """Bind an operation to an address; a run is answered with its record."""
    operation = _OPERATIONS[name]
    if operation.response is RunAnswer:
        more = {"render": run_reply, "response": RunBody, **more}
    return operation_route(method, path, operation, **more)


ROUTES: Final[tuple[Route, ...]] = (
    _asking(
        "POST",
        "/runs",
        "runs.create",
        tag="runs",
        render=begun_reply,
        statuses={
            202: "Accepted: the run is queued or running, and Location leads to it.",
            200: "It has ended: mode was sync, or the idempotency key stands for a run that has.",
        },
        headers=_LOCATION,
        example=examples.CREATE,
        answer=examples.QUEUED,
    ),
    _asking(
        "POST",
        "/runs/cancel",
        "runs.cancel_many",
        tag="runs",
        example=examples.CANCEL_MANY,
        answer=examples.COUNTED,
    ),
    _asking(
        "POST",
        "/runs/retry",
        "runs.retry_many",
        tag="runs",
        example=examples.RETRY_MANY,
        answer=examples.RETRIED_MANY,
    ),
    _asking("GET", "/runs/find", "runs.find", tag="runs", answer=examples.FOUND),
    READING,
    _asking("GET", "/runs", "runs.list", tag="runs", answer=examples.RUNS),
    _asking(
        "POST",
        "/runs/{run_id}/cancel",
        "runs.cancel",
        tag="runs",
        example={"reason": "not needed any more"},
        answer=examples.CANCELED,
    ),
    _asking(
        "POST",
        "/runs/{run_id}/retry",
        "runs.retry",
        tag="runs",
        render=begun_reply,
        statuses={202: "Accepted: a new run, and Location leads to it.", 200: "It has ended."},
        headers=_LOCATION,
        answer=examples.RETRIED,
    ),
    _asking(
        "POST",
        "/runs/{run_id}/answers",
        "runs.answer",
        tag="runs",
        example={"question_id": "ask-1", "answer": True},
        answer=examples.QUEUED,
    ),
    _asking(
        "GET", "/runs/{run_id}/questions", "runs.questions", tag="runs", answer=examples.QUESTIONS
    ),
    _asking("GET", "/runs/{run_id}/export", "runs.export", tag="runs", answer=examples.EXPORT),
    _asking("GET", "/runs/{run_id}/history", "runs.history", tag="runs", answer=examples.HISTORY),
    _asking("GET", "/runs/{run_id}/logs", "runs.logs", tag="runs", answer=examples.LOGS),
    _asking(
        "POST",
        "/runs/{run_id}/uploads",
        "blobs.create_upload",
        tag="blobs",
        render=upload_reply,
        statuses={201: "Open: PUT the bytes to Location."},
        headers={"Location": "where the bytes go"},
        example={"size_limit": 1 << 20},
        answer=examples.UPLOAD,
    ),
    RECEIVING,
    SENDING,
    _asking("GET", "/plugins", "plugins.list", tag="plugins", answer=examples.PLUGINS),
    _asking(
        "POST",
        "/plugin/trigger",
        "plugins.trigger",
        tag="plugins",
        render=envelope_reply,
        refuse=refused_envelope,
        statuses={
            200: "The entry has ended: `ok` says how.",
            202: "It takes longer than the wait: follow the run.",
        },
        headers={"Location": "the address of the run, with 202"},
        example=examples.TRIGGER,
        answer=examples.ENVELOPE,
    ),
)
