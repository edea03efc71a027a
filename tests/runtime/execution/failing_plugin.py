"""Entries that fail in the same ways inline, in a thread, and in processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from perdure import PluginError, RunContext, Secret, SyncRunContext, entry, plugin

PLACES: Final = ("inline", "threaded", "plain", "awaited")


class Unspeakable(Exception):
    """It has no message."""

    def __str__(self) -> str:
        raise ValueError("there are no words")

    __repr__ = __str__


class Exits(Exception):
    """Whoever asks for its message is to end."""

    def __str__(self) -> str:
        raise SystemExit(3)


def library(token: str) -> None:
    """Fail in somebody else's code."""
    json.loads("{")


def raised(token: str) -> None:
    """Fail with a secret in a message that had a cause."""
    try:
        dict[str, str]()[token]
    except KeyError as error:
        raise ValueError(f"with {token}") from error


def noted(token: str) -> None:
    """Fail with a secret in a note, far down, after a text that takes all the room."""

    def deeper(left: int) -> None:
        if left:
            return deeper(left - 1)
        error = ValueError("x" * 1200)
        error.add_note(f"{token} " * 50)
        raise error

    deeper(100)


def several(token: str) -> None:
    """Fail several times at once."""
    raise ExceptionGroup(token, [ValueError(token), KeyError(token)])


def unspeakable(token: str) -> None:
    """Fail with what nobody can tell."""
    raise Unspeakable


def exits(token: str) -> None:
    """Fail with what ends whoever tells it."""
    raise Exits


def odd(token: str) -> None:
    """Fail on purpose, with a message that nobody can tell."""
    error = PluginError("MINE", "")
    error.message = Unspeakable()  # type: ignore[assignment]
    raise error


def purpose(token: str) -> None:
    """Fail on purpose."""
    raise PluginError("MINE", f"no {token}")


WAYS: Final[dict[str, Callable[[str], None]]] = {
    fn.__name__: fn for fn in (library, raised, noted, several, unspeakable, exits, odd, purpose)
}


@plugin("failing", version="1")
class Failing:
    """The same, in four places, beside a step and in one."""

    @entry
    async def inline(self, ctx: RunContext, how: str, token: Secret, *, step: bool = False) -> Any:
        """Fail inline."""

        async def body() -> None:
            WAYS[how](token)

        return await (ctx.run.step("s", body) if step else body())

    @entry(where="thread")
    def threaded(self, ctx: SyncRunContext, how: str, token: Secret, *, step: bool = False) -> Any:
        """Fail in a thread."""
        return ctx.run.step("s", WAYS[how], token) if step else WAYS[how](token)

    @entry
    def plain(self, ctx: SyncRunContext, how: str, token: Secret, *, step: bool = False) -> Any:
        """Fail in a process."""
        return ctx.run.step("s", WAYS[how], token) if step else WAYS[how](token)

    @entry(where="process")
    async def awaited(self, ctx: RunContext, how: str, token: Secret, *, step: bool = False) -> Any:
        """Fail on asyncio."""

        async def body() -> None:
            WAYS[how](token)

        return await (ctx.run.step("s", body) if step else body())
