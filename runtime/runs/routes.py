"""The table of routes: where each operation is, over HTTP.

The first rows are asked for most. A module that adds to the surface gives rows of its own, and
``perdure.runtime.http.app`` puts them together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure.runtime.http.capabilities import CAPABILITIES, VERSION
from perdure.runtime.kernel.routes.operation_route import (
    asking,
    begun_reply,
    envelope_reply,
    refused_envelope,
    upload_reply,
)
from perdure.runtime.runs import examples
from perdure.runtime.runs.blob_routes import RECEIVING, SENDING

if TYPE_CHECKING:
    from perdure.runtime.kernel.routes.route import Row

_LOCATION: Final = {"Location": "the address of the run"}

ROWS: Final[tuple[Row, ...]] = (
    asking(
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
    asking(
        "POST",
        "/runs/cancel",
        "runs.cancel_many",
        tag="runs",
        example=examples.CANCEL_MANY,
        answer=examples.COUNTED,
    ),
    asking(
        "POST",
        "/runs/retry",
        "runs.retry_many",
        tag="runs",
        example=examples.RETRY_MANY,
        answer=examples.RETRIED_MANY,
    ),
    asking("GET", "/runs/{run_id}", "runs.get", tag="runs", answer=examples.ENDED),
    asking("GET", "/runs", "runs.list", tag="runs", answer=examples.RUNS),
    asking(
        "POST",
        "/runs/{run_id}/cancel",
        "runs.cancel",
        tag="runs",
        example={"reason": "not needed any more"},
        answer=examples.CANCELED,
    ),
    asking(
        "POST",
        "/runs/{run_id}/retry",
        "runs.retry",
        tag="runs",
        render=begun_reply,
        statuses={202: "Accepted: a new run, and Location leads to it.", 200: "It has ended."},
        headers=_LOCATION,
        answer=examples.RETRIED,
    ),
    asking(
        "POST",
        "/runs/{run_id}/answers",
        "runs.answer",
        tag="runs",
        example={"question_id": "ask-1", "answer": True},
        answer=examples.QUEUED,
    ),
    asking(
        "GET", "/runs/{run_id}/questions", "runs.questions", tag="runs", answer=examples.QUESTIONS
    ),
    asking("GET", "/runs/{run_id}/export", "runs.export", tag="runs", answer=examples.EXPORT),
    asking("GET", "/runs/{run_id}/logs", "runs.logs", tag="runs", answer=examples.LOGS),
    asking(
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
    asking("GET", "/plugins", "plugins.list", tag="plugins", answer=examples.PLUGINS),
    asking(
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
    CAPABILITIES,
    VERSION,
)
