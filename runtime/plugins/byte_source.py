"""A piece of bytes, as entries give them, inline or in a process. Light."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, nullcontext
from typing import TYPE_CHECKING, Any

from perdure.runtime.plugins.contract import PluginError

if TYPE_CHECKING:
    from collections.abc import AsyncIterable
    from contextlib import AbstractAsyncContextManager

Piece = bytes | bytearray | memoryview


def bytes_of(given: Any) -> memoryview:  # noqa: ANN401 - whatever an entry gives us
    """Give the bytes of a piece; what is none is refused."""
    if not isinstance(given, Piece):
        raise PluginError("VALIDATION_ERROR", f"bytes are wanted here, not {type(given).__name__}")
    return memoryview(given).cast("B")


def reading(pieces: AsyncIterable[Any]) -> AbstractAsyncContextManager[Any]:
    """Read what is awaited: a generator is ours to end, when it is not read to its end."""
    return aclosing(pieces) if isinstance(pieces, AsyncGenerator) else nullcontext()
