"""One run over HTTP: as it is, as it was, or once it has ended."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from perdure.runtime.kernel.invalid_value import invalid
from perdure.runtime.kernel.operations import operations_of
from perdure.runtime.kernel.principal import principal_of
from perdure.runtime.kernel.routes.arguments import path_args, queried, query_args
from perdure.runtime.kernel.routes.hang_up import unless_hung_up
from perdure.runtime.kernel.routes.route import Route
from perdure.runtime.runs import examples
from perdure.runtime.runs.operations import Runs
from perdure.runtime.runs.replies import RunBody, run_reply
from perdure.runtime.runs.requests import ReadRun

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from perdure.runtime.kernel.routes.reply import Reply
    from perdure.runtime.kernel.routes.route import Handler, Surface

_GET: Final = operations_of(Runs)["runs.get"]


def _reading(surface: Surface) -> Handler:
    operations = surface.node.operations
    fields = queried(ReadRun, READING.taken_from("query"))

    async def read(request: Request) -> Reply:
        args = query_args(request.scope["query_string"], fields)
        args.update(path_args(request.path_params))
        ask = partial(operations.call, principal_of(request))
        if "wait" not in args and "after" not in args:
            return run_reply(await ask("runs.get", args))
        wait = {"run_id": args["run_id"], "timeout": _seconds(args), "after": args.get("after")}
        answer = await unless_hung_up(request, partial(ask, "runs.wait", wait))
        return run_reply(answer or await ask("runs.get", {"run_id": args["run_id"]}))

    return read


def _seconds(args: Mapping[str, Any]) -> float:
    """Give how long to wait, or refuse what cannot be waited for."""
    if "wait" not in args:
        raise invalid("after needs wait, such as wait=30", "wait", "a number of seconds")
    if "at" in args:
        message = "wait is for the run as it is now, and at for the past: pass one of them"
        raise invalid(message, "at", "no moment where a run is waited for")
    seconds = args["wait"]
    if not isinstance(seconds, float) or seconds < 0:
        message = "wait is a number of seconds, such as wait=30"
        raise invalid(message, "wait", "a number of seconds", type(seconds).__name__)
    return seconds


READING: Final = Route(
    method="GET",
    path="/runs/{run_id}",
    name=_GET.name,
    summary="Read a run, now or as it was; with `wait`, as soon as it has ended.",
    make=_reading,
    tag="runs",
    request=ReadRun,
    response=RunBody,
    errors=_GET.errors,
    answer=examples.ENDED,
    needs=_GET.name,
    permission=_GET.permission,
)
