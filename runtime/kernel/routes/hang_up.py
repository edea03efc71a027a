"""Clients that hang up while an answer takes its time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import trio
from outcome import Error, Outcome, Value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

HUNG_UP: Final = "perdure.hung_up"  # an extension of our port: waits until the client hangs up
Result = TypeVar("Result")


async def unless_hung_up(
    request: Request, answer: Callable[[], Awaitable[Result]]
) -> Result | None:
    """Give an answer, or None if the client closes its side first: then it is cancelled."""
    hung_up = (request.scope.get("extensions") or {}).get(HUNG_UP)
    if hung_up is None:  # another server, which does not tell
        return await answer()
    given: Outcome[Result] | None = None

    async def cancel_when_hung_up() -> None:
        await hung_up()
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel_when_hung_up)
        try:
            given = Value(await answer())
        except Exception as error:  # noqa: BLE001 - raised outside of the nursery
            given = Error(error)
        nursery.cancel_scope.cancel()
    return None if given is None else given.unwrap()
