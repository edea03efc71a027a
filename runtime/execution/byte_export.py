"""Taking in bytes that an entry puts out: few of them stay with the item, more become a blob."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any

import trio

from perdure.eventlog.errors import RecordTooLarge, Unavailable
from perdure.runtime.kernel.errors import OperationError, translated
from perdure.runtime.plugins.byte_source import Piece, bytes_of, reading
from perdure.runtime.plugins.contract import PluginError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from perdure.runtime.blobs.blob import Blob
    from perdure.runtime.blobs.store import Draft
    from perdure.runtime.execution.execution import Execution
    from perdure.runtime.execution.run_secrets import Scanner

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


async def _pieces(data: Any) -> AsyncGenerator[memoryview, None]:  # noqa: ANN401 - whatever an entry gives us
    if isinstance(data, Piece):
        yield bytes_of(data)
    elif isinstance(data, AsyncIterable):
        async with reading(data):
            async for piece in data:
                yield bytes_of(piece)
    elif isinstance(data, Iterable) and not isinstance(data, str):
        for piece in data:
            yield bytes_of(piece)
            await trio.lowlevel.checkpoint()
    else:
        bytes_of(data)
