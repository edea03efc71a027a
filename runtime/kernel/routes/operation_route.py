"""Routes that are operations: parse, ask, render. There is no rule here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.invalid_value import invalid
from perdure.runtime.kernel.principal import principal_of
from perdure.runtime.kernel.routes.arguments import body_args, path_args, queried, query_args
from perdure.runtime.kernel.routes.reply import Reply, json_reply
from perdure.runtime.kernel.routes.route import Route

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    from perdure.runtime.kernel.operations import Operation
    from perdure.runtime.kernel.routes.route import Handler, Surface

    Render = Callable[[Any], Reply]

TRANSPORT_ERRORS: Final = ("PAYLOAD_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE")  # of a body


def operation_route(  # noqa: PLR0913 - each is a keyword of its own
    method: str,
    path: str,
    operation: Operation,
    *,
    tag: str,
    render: Render = json_reply,
    response: Any = None,  # noqa: ANN401 - a type
    statuses: Mapping[int, str] | None = None,
    example: Mapping[str, Any] | None = None,
    answer: Any = None,  # noqa: ANN401 - any JSON
    headers: Mapping[str, str] | None = None,
    refuse: Callable[[OperationError], Reply] | None = None,
) -> Route:
    """Bind an operation to an address."""
    route = Route(
        method=method,
        path=path,
        name=operation.name,
        summary=operation.summary,
        make=lambda surface: _handler(surface, route, operation, render, refuse),
        tag=tag,
        request=operation.request,
        response=response or operation.response,
        statuses=statuses or {200: "Done."},
        errors=operation.errors + (TRANSPORT_ERRORS if method == "POST" else ()),
        example=example or {},
        answer=answer,
        headers=headers or {},
        needs=operation.name,
        permission=operation.permission,
    )
    return route


def _handler(
    surface: Surface,
    route: Route,
    operation: Operation,
    render: Render,
    refuse: Callable[[OperationError], Reply] | None,
) -> Handler:
    operations, name = surface.node.operations, route.name
    parse = operation.dialect.translating(_parser(surface, route))

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


def _parser(surface: Surface, route: Route) -> Callable[[Request], Awaitable[dict[str, Any]]]:
    assert route.request is not None  # noqa: S101 - an operation has one
    fields = queried(route.request, route.taken_from("query"))
    in_path, has_body = frozenset(route.named), bool(route.taken_from("body"))
    env = surface.node.env
    limit, is_optional = surface.settings.server.body_limit, route.body_is_optional

    async def parse(request: Request) -> dict[str, Any]:
        args = query_args(request.scope["query_string"], fields)
        if has_body:
            args = await body_args(env, request, limit, optional=is_optional)
            for name in in_path & args.keys():
                told = f"{name} belongs in the address alone"
                raise invalid(told, name, "nothing: it is in the address")
        return {**args, **path_args(request.path_params)} if in_path else args

    return parse
