"""Bytes on their way out of a process: cut into pieces that fit into messages. Light."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from typing import TYPE_CHECKING, Any

from perdure.runtime.plugins.byte_source import Piece, bytes_of, reading
from perdure.runtime.process.messages import PIECE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator


def pieces(data: Any) -> Iterator[bytes]:  # noqa: ANN401 - whatever an entry gives us
    """Give bytes, which came whole or in pieces of any size, in pieces of one size."""
    waiting = bytearray()
    for given in _given(data):
        waiting += bytes_of(given)
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
    async with reading(data):
        async for given in data:
            waiting += bytes_of(given)
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
