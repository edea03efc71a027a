"""How a body of an entry waits in each place, and bodies whose steps are tried again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple

import trio

from perdure import PluginError, Retry


class Place(NamedTuple):
    """How a body waits where it is executed."""

    wait: Callable[[Any], Awaitable[Any]]  # for what is awaited inline
    pause: Callable[[float], Awaitable[None]]


async def as_it_is(value: Any) -> Any:
    """Give a value that was not awaited."""
    return value


async def awaited(value: Any) -> Any:
    """Wait for a value."""
    return await value


async def sleep(seconds: float) -> None:
    """Sleep, and let nobody else go on meanwhile."""
    time.sleep(seconds)  # noqa: ASYNC251 - there is nobody else


INLINE: Final = Place(awaited, trio.sleep)
PLAIN: Final = Place(as_it_is, sleep)
AWAITED: Final = Place(awaited, asyncio.sleep)


class RetriedBodies:
    """What the tests let the steps of a run do."""

    def body(self, at: Place, fn: Callable[[], Any]) -> Callable[[], Any]:
        """Give a function as it is a step's body in a place."""

        async def awaited() -> Any:
            return fn()

        return fn if at is PLAIN else awaited

    async def raised(self, call: Callable[[], Any], at: Place) -> list[str]:
        """Make a call; tell the type and the text of what it raises."""
        try:
            given = call()
            if given is not None:
                await at.wait(given)
        except Exception as error:  # noqa: BLE001 - whatever it is
            return [type(error).__name__, str(error)]
        return []

    async def tries(self, run: Any, at: Place) -> dict[str, Any]:
        """Fail steps in several ways; tell how often each was called, and what it raised."""
        rules = {
            "plain": (ValueError("no"), Retry(delay=0)),
            "retriable": (PluginError("MINE", "no", retriable=True), Retry(delay=0)),
            "not retriable": (PluginError("MINE", "no"), Retry(delay=0)),
            "another": (ValueError("no"), Retry(delay=0, on=OSError)),
            "such": (TimeoutError("no"), Retry(delay=0, on=(OSError, KeyError))),
            "in a group": (ExceptionGroup("g", [OSError("no")]), Retry(delay=0, on=OSError)),
            "not in a group": (ExceptionGroup("g", [ValueError("no")]), Retry(delay=0, on=OSError)),
        }
        told = {}
        for name, (error, rule) in rules.items():
            calls: list[int] = []

            def fails(error: Exception = error, calls: list[int] = calls) -> None:
                calls.append(1)
                raise error

            said = await self.raised(partial(self.step, run, at, name, fails, rule), at)
            told[name] = [len(calls), *said]
        return told

    def step(self, run: Any, at: Place, name: str, fn: Callable[[], Any], rule: Retry) -> Any:
        """Do a step, with a rule for its tries."""
        return run.step(name, self.body(at, fn), retry=rule)

    async def takes_the_other_kind(self, run: Any, at: Place) -> list[str]:
        """Do a step with a function that does not fit the place."""

        async def awaited() -> int:
            return 1

        other = awaited if at is PLAIN else lambda: 1
        return await self.raised(lambda: run.step("s", other, retry=Retry(delay=0)), at)

    async def takes_too_long(self, run: Any, at: Place) -> list[Any]:
        """Do a step that takes longer than it may, and one that raises something alike."""
        calls: list[int] = []

        async def slow() -> None:
            calls.append(1)
            await at.pause(10)

        async def alike() -> None:
            raise TimeoutError("mine")

        rule = Retry(tries=2, delay=0, on=KeyError)
        said = await self.raised(lambda: run.step("s", slow, retry=rule, timeout=0.05), at)
        more = await self.raised(lambda: run.step("t", alike, timeout=5), at)
        return [len(calls), *said, *more]
