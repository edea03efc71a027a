"""Bytes on their way out of a process: cut into pieces that fit into messages. Light."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Any

from runtime.plugins.contract import PluginError
from runtime.process.messages import PIECE

if TYPE_CHECKING:
    from collections.abc import Iterator

Piece = bytes | bytearray | memoryview


def pieces(data: Any) -> Iterator[bytes]:  # noqa: ANN401 - whatever an entry gives us
    """Give bytes, which came whole or in pieces of any size, in pieces of one size."""
    waiting = bytearray()
    for given in _given(data):
        waiting += _bytes_of(given)
        yield from _cut(waiting)
    if waiting:
        yield bytes(waiting)


async def awaited_pieces(data: Any) -> AsyncGenerator[bytes, None]:  # noqa: ANN401 - as above
    """Give bytes in pieces of one size; those that came may have been awaited."""
    if not isinstance(data, AsyncIterable):
        for piece in pieces(data):
            yield piece
        return
    waiting = bytearray()
    async with AsyncExitStack() as stack:
        if isinstance(data, AsyncGenerator):  # it is ours to end, when it is not read to its end
            await stack.enter_async_context(aclosing(data))
        async for given in data:
            waiting += _bytes_of(given)
            for piece in _cut(waiting):
                yield piece
    if waiting:
        yield bytes(waiting)


def _given(data: Any) -> Iterable[Any]:  # noqa: ANN401 - whatever an entry gives us
    if isinstance(data, Piece):
        whole = memoryview(data).cast("B")
        return (whole[start : start + PIECE] for start in range(0, len(whole), PIECE))
    if isinstance(data, Iterable) and not isinstance(data, str):
        return data
    return (data,)  # which is refused


def _cut(waiting: bytearray) -> Iterator[bytes]:
    """Take full pieces from what waits."""
    while len(waiting) >= PIECE:
        yield bytes(waiting[:PIECE])
        del waiting[:PIECE]


def _bytes_of(given: Any) -> memoryview:  # noqa: ANN401 - whatever an entry gives us
    if not isinstance(given, Piece):
        raise PluginError("VALIDATION_ERROR", f"bytes are wanted here, not {type(given).__name__}")
    return memoryview(given).cast("B")
