"""What is answered over HTTP about runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NotRequired

from perdure.actors.run.status import ENDED
from perdure.actors.run.views import ExportItem, RunRecord
from perdure.runtime.kernel.routes.reply import Header, Reply, headers_of, json_reply
from perdure.runtime.runs.trigger import STILL_RUNNING, refusal

if TYPE_CHECKING:
    from perdure.runtime.kernel.errors import OperationError
    from perdure.runtime.runs.answers import Envelope, RunAnswer


class RunBody(RunRecord):
    """The record of a run, with the cursor at which it is true.

    Created with mode sync and ended in time, it comes with its result: of a large one as many items
    as fit into a page of exports.
    """

    cursor: str
    result: NotRequired[list[ExportItem]]


def run_reply(answer: RunAnswer) -> Reply:
    """Answer with a record."""
    return json_reply(_flat(answer))


def begun_reply(answer: RunAnswer) -> Reply:
    """Answer with the record of a run that was asked for: accepted, or ended already."""
    run = answer["run"]
    status = 200 if run["status"] in ENDED else 202
    return json_reply(_flat(answer), status, _location(run["run_id"]))


def upload_reply(answer: Any) -> Reply:  # noqa: ANN401 - an UploadAnswer
    """Answer with an upload, and say where its bytes go."""
    return json_reply(answer, 201, (b"location", f"/uploads/{answer['upload_id']}".encode()))


def envelope_reply(envelope: Envelope) -> Reply:
    """Answer with an envelope: 200 if the entry has ended, however it did."""
    error, run_id = envelope["error"], envelope["run_id"]
    if error is not None and error["code"] == STILL_RUNNING and run_id is not None:
        return json_reply(envelope, 202, _location(run_id))
    return json_reply(envelope)


def refused_envelope(error: OperationError) -> Reply:
    """Answer with the envelope of an entry that was never started."""
    kind = error.kind
    envelope = refusal({**error.view(), "retriable": error.kind.retriable})
    return json_reply(envelope, kind.status, *headers_of(error))


def _flat(answer: RunAnswer) -> dict[str, Any]:
    body: dict[str, Any] = {**answer["run"], "cursor": answer["cursor"]}
    if "result" in answer:
        body["result"] = answer["result"]
    return body


def _location(run_id: str) -> Header:
    return b"location", f"/runs/{run_id}".encode()
