"""Messages of peers: decoded where that delays nobody, and weighed.

A small message is decoded at once. A large one is decoded in a thread, so that the event loop goes
on: it is checked in Python, where the interpreter lets others in between. Few are decoded at the
same time, since nobody knows how much memory a message takes before it is weighed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.eventlog.cbor import Counted
    from perdure.eventlog.env import Env

LARGE: Final = 8 << 10  # bytes, which are at most as many values: a few milliseconds
VALUE_BYTES: Final = 64  # that a value takes besides its text: an empty list, and its place in one
_WIDE: Final = 4  # bytes of each character of a text in which one of them is unusual
_THREADS: Final = trio.CapacityLimiter(2)
Result = TypeVar("Result")


class Decoded(NamedTuple):
    """What a message says, and about how many bytes of memory that takes."""

    value: Any
    weight: int


def weighed(found: Counted, message: bytes | str) -> Decoded:
    """Say how much memory a decoded message takes."""
    width = 1 if message.isascii() else _WIDE
    return Decoded(found.value, width * len(message) + found.values * VALUE_BYTES)


async def off_the_loop(env: Env, decode: Callable[[], Result], size: int) -> Result:
    """Decode so many bytes: at once, or in a thread if they are many."""
    return decode() if size < LARGE else await env.run_sync(decode, limiter=_THREADS)
