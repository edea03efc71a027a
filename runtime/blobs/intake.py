"""Taking in bytes that an entry puts out: few of them stay with the item, more become a blob."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from contextlib import AsyncExitStack, aclosing, contextmanager
from typing import TYPE_CHECKING, Any

import trio

from eventlog.errors import RecordTooLarge, Unavailable
from runtime.errors import OperationError, translated
from runtime.plugins.contract import PluginError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runtime.blobs.blob import Blob
    from runtime.blobs.store import Draft
    from runtime.execution.execution import Execution
    from runtime.secrets.redaction import Scanner

Piece = bytes | bytearray | memoryview
Arriving = Piece | Iterable[Piece] | AsyncIterable[Piece]


async def take_in(draft: Draft, data: Arriving, limit: int, scanner: Scanner) -> bytes | Blob:
    """Take in all that arrives: give the bytes if they are so few, else the blob they are now."""
    waiting = bytearray()
    async with aclosing(_pieces(data)) as pieces:
        async for piece in pieces:
            scanner.see(piece)
            if draft.size or len(waiting) + len(piece) > limit:
                await draft.write(waiting)
                await draft.write(piece)
                waiting.clear()
            else:
                waiting += piece
    return await draft.publish() if draft.size else bytes(waiting)


async def settle(execution: Execution) -> None:
    """Return when all that waits is in the log; not even a cancelled entry goes on before."""
    with trio.CancelScope(shield=True):
        await execution.delivery.hand_over()


@contextmanager
def told_to_plugins() -> Iterator[None]:
    """Raise what was refused below as entries know it."""
    try:
        yield
    except (OperationError, Unavailable, RecordTooLarge) as error:
        told = translated(error)
        raise PluginError(
            told.code, told.message, details=told.details, retriable=told.kind.retriable
        ) from error


async def _pieces(data: Any) -> AsyncGenerator[memoryview, None]:  # noqa: ANN401 - as below
    if isinstance(data, Piece):
        yield _bytes_of(data)
    elif isinstance(data, AsyncIterable):
        async with AsyncExitStack() as stack:
            if isinstance(
                data, AsyncGenerator
            ):  # it is ours to end, when it is not read to its end
                await stack.enter_async_context(aclosing(data))
            async for piece in data:
                yield _bytes_of(piece)
    elif isinstance(data, Iterable) and not isinstance(data, str):
        for piece in data:
            yield _bytes_of(piece)
            await trio.lowlevel.checkpoint()
    else:
        _bytes_of(data)


def _bytes_of(piece: Any) -> memoryview:  # noqa: ANN401 - whatever an entry gives us
    if not isinstance(piece, Piece):
        raise PluginError("VALIDATION_ERROR", f"bytes are wanted here, not {type(piece).__name__}")
    return memoryview(piece).cast("B")
