"""Bytes on their way out of a process: cut into pieces that fit into messages. Light."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from perdure.runtime.plugins.byte_source import pieces_of
from perdure.runtime.process.messages import PIECE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


async def chunks_of(data: Any) -> AsyncGenerator[bytes, None]:  # noqa: ANN401 - whatever an entry gives us
    """Give bytes, which come whole or in pieces of any size, in pieces of one size."""
    waiting = bytearray()
    async with aclosing(pieces_of(data)) as pieces:
        async for piece in pieces:
            for start in range(0, len(piece), PIECE):
                waiting += piece[start : start + PIECE]
                if len(waiting) >= PIECE:
                    yield bytes(waiting[:PIECE])
                    del waiting[:PIECE]
    if waiting:
        yield bytes(waiting)
