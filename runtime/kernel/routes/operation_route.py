"""Rows that are operations: parse, ask, render. There is no rule here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NotRequired

from perdure.actors.run.status import ENDED
from perdure.actors.run.views import ExportItem, RunRecord
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.node import OPERATIONS
from perdure.runtime.kernel.principal import principal_of
from perdure.runtime.kernel.routes.arguments import body_args, path_args, queried, query_args
from perdure.runtime.kernel.routes.reply import Header, Reply, headers_of, json_reply
from perdure.runtime.kernel.routes.route import Row
from perdure.runtime.runs.answers import Envelope, RunAnswer
from perdure.runtime.runs.trigger import STILL_RUNNING, refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    from perdure.runtime.kernel.routes.route import Handler, Surface

    Render = Callable[[Any], Reply]

TRANSPORT_ERRORS: Final = ("PAYLOAD_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE")  # of a body


class RunBody(RunRecord):
    """The record of a run, with the cursor at which it is true.

    Created with mode sync and ended in time, it comes with its result: of a large one as many items
    as fit into a page of exports.
    """

    cursor: str
    result: NotRequired[list[ExportItem]]


def asking(  # noqa: PLR0913 - each is a keyword of its own
    method: str,
    path: str,
    operation: str,
    *,
    tag: str,
    render: Render | None = None,
    response: Any = None,  # noqa: ANN401 - a type
    statuses: Mapping[int, str] | None = None,
    example: Mapping[str, Any] | None = None,
    answer: Any = None,  # noqa: ANN401 - any JSON
    headers: Mapping[str, str] | None = None,
    refuse: Callable[[OperationError], Reply] | None = None,
) -> Row:
    """Bind an operation to an address."""
    asked = OPERATIONS[operation]
    is_run = asked.response is RunAnswer
    shown = render or (run_reply if is_run else json_reply)
    row = Row(
        method=method,
        path=path,
        name=operation,
        summary=asked.summary,
        make=lambda surface: _handler(surface, row, shown, refuse),
        tag=tag,
        request=asked.request,
        response=response or (RunBody if is_run else asked.response),
        statuses=statuses or {200: "Done."},
        errors=asked.errors + (TRANSPORT_ERRORS if method == "POST" else ()),
        example=example or {},
        answer=answer,
        headers=headers or {},
        needs=operation,
    )
    return row


def _handler(
    surface: Surface,
    row: Row,
    render: Render,
    refuse: Callable[[OperationError], Reply] | None,
) -> Handler:
    operations, name = surface.node.operations, row.name
    parse = _parser(surface, row)

    async def handle(request: Request) -> Reply:
        args = await parse(request)
        return render(await operations.call(principal_of(request), name, args))

    async def handle_or_refuse(request: Request) -> Reply:
        try:
            return await handle(request)
        except OperationError as error:
            assert refuse is not None  # noqa: S101 - or this would not be the handler
            return refuse(error)

    return handle if refuse is None else handle_or_refuse


def _parser(surface: Surface, row: Row) -> Callable[[Request], Awaitable[dict[str, Any]]]:
    assert row.request is not None  # noqa: S101 - an operation has one
    fields = queried(row.request, row.taken_from("query"))
    in_path, has_body = frozenset(row.named), bool(row.taken_from("body"))
    limit, is_optional = surface.settings.body_limit, row.body_is_optional

    async def parse(request: Request) -> dict[str, Any]:
        args = query_args(request.scope["query_string"], fields)
        if has_body:
            args = await body_args(request, limit, optional=is_optional)
            for name in in_path & args.keys():
                raise OperationError("VALIDATION_ERROR", f"{name} belongs in the address alone")
        return {**args, **path_args(request.path_params)} if in_path else args

    return parse


# Rendering


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
