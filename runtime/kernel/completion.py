"""Coroutines that wait for nothing, and need no event loop. Light."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

Result = TypeVar("Result")


def completed(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Bring a coroutine to its end that never waits for anything."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    coroutine.close()
    name = getattr(coroutine, "__qualname__", "this")
    raise RuntimeError(f"{name} waits, and there is nothing to wait for")
