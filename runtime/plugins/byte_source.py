"""Bytes as entries give them, whole or piece by piece, wherever they run. Light."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from contextlib import aclosing, nullcontext
from typing import Any

from perdure.runtime.plugins.contract import PluginError

Piece = bytes | bytearray | memoryview


def bytes_of(given: Any) -> memoryview:  # noqa: ANN401 - whatever an entry gives us
    """Give the bytes of a piece; what is none is refused."""
    if not isinstance(given, Piece):
        raise PluginError("VALIDATION_ERROR", f"bytes are wanted here, not {type(given).__name__}")
    return memoryview(given).cast("B")


async def pieces_of(data: Any) -> AsyncGenerator[memoryview, None]:  # noqa: ANN401 - whatever an entry gives us
    """Give bytes in the pieces they come in; only what comes awaited is awaited.

    A generator is ours to end, when it is not read to its end.
    """
    if isinstance(data, AsyncIterable):
        async with aclosing(data) if isinstance(data, AsyncGenerator) else nullcontext():
            async for piece in data:
                yield bytes_of(piece)
    elif isinstance(data, Iterable) and not isinstance(data, str | Piece):
        for piece in data:
            yield bytes_of(piece)
    else:
        yield bytes_of(data)
