"""Ctrl-C and SIGTERM: the first asks the run to end, the second forces it, the third exits.

A server drains at the first signal and exits at the second. While a command still starts, before
its event loop listens, the first signal exits: no work has begun.

The handler is Python's own, so that the third signal exits even while an entry blocks the event
loop.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from perdure.runtime.kernel.terminal.invocation import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    import trio

AT_ONCE: Final = 3
LEAVING: Final = 2.0  # seconds that a forced end waits for code that ignores it
_SHOW_CURSOR: Final = b"\x1b[?25h"


class Interrupts:
    """Counts Ctrl-C and SIGTERM during a ``with`` block."""

    def __init__(self, *, at_once: int = AT_ONCE) -> None:
        """Exit at the signal with the number ``at_once``."""
        self.count = 0
        self.name = "Ctrl-C"  # the name of the last signal
        self._signals = (signal.SIGINT, signal.SIGTERM)
        self._at_once = at_once
        self._token: trio.lowlevel.TrioToken | None = None
        self._heard: trio.Event
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        self._before = [signal.signal(number, self._hear) for number in self._signals]
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in zip(self._signals, self._before, strict=True):
            signal.signal(number, before)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Wake this event loop during a ``with`` block; outside of it the first signal exits."""
        import trio

        self._heard = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        try:
            yield
        finally:
            self._token = None

    async def first(self) -> None:
        """Wait for the first signal; it may have come already."""
        while not self.count:
            await self.next()

    async def next(self) -> int:
        """Wait for one more signal; return the count."""
        heard = self._heard
        await heard.wait()
        return self.count

    async def cancel(self, scope: trio.CancelScope) -> None:
        """Cancel a scope at the first signal."""
        await self.first()
        scope.cancel()

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self.name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        if self._token is None or self.count >= self._at_once:
            leave_at_once(ExitCode.INTERRUPTED)
        self._token.run_sync_soon(self._wake)

    def _wake(self) -> None:
        import trio

        self._heard.set()
        self._heard = trio.Event()


def leave_soon(code: ExitCode) -> None:
    """Exit after ``LEAVING`` seconds, even if some code ignores its cancellation."""
    signal.signal(signal.SIGALRM, lambda *_: leave_at_once(code))
    signal.setitimer(signal.ITIMER_REAL, LEAVING)


def leave_at_once(code: ExitCode) -> NoReturn:
    """Exit without clean-up, as a crash would. Acknowledged writes are on disk."""
    if os.isatty(1):
        os.write(1, _SHOW_CURSOR)
    os._exit(code)
