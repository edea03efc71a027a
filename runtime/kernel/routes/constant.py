"""Routes that answer everybody the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.runtime.kernel.routes.arguments import refuse_query

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from perdure.runtime.kernel.routes.reply import Reply
    from perdure.runtime.kernel.routes.route import Handler


def always(reply: Reply) -> Handler:
    """Answer everybody the same."""

    async def answer(request: Request) -> ASGIApp:
        refuse_query(request)
        return reply

    return answer
