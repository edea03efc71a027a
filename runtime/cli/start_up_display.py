"""What people see of a start-up: one line on a terminal, log lines elsewhere.

A start-up that takes no time shows nothing. What goes on after the server is ready is logged.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from perdure.runtime.kernel.opening import progress_text

if TYPE_CHECKING:
    from typing import TextIO

    from perdure.runtime.kernel.opening import StartUp

QUIET: Final = 1.0  # seconds before anything is shown
REDRAWN: Final = 0.2  # seconds between two pictures of the line
LOGGED: Final = 5.0  # seconds between two lines of a log
_CLEAR: Final = "\r\x1b[2K"
_log = logging.getLogger("perdure.serve")


class StartUpDisplay:
    """Shows one start-up on one stream."""

    def __init__(self, start_up: StartUp, stream: TextIO) -> None:
        """Nothing is shown before ``run``."""
        self._start_up = start_up
        self._stream = stream
        self._is_open = False
        self._is_drawn = False

    async def run(self) -> None:
        """Show how far it has come until nothing is left to do."""
        await self._pause(QUIET)
        while not self._start_up.stopping.is_set():
            progress = self._start_up.progress
            if self._is_open and not progress:
                return
            told = f"starting: {progress_text(progress)}"
            if self._is_open or not self._stream.isatty():
                _log.info("%s", told)
                await self._pause(LOGGED)
            else:
                self._draw(told)
                await self._pause(REDRAWN)

    def opened(self) -> None:
        """Take the line away: what is left to do is logged from now on."""
        self._is_open = True
        if self._is_drawn:
            self._draw("")

    def _draw(self, text: str) -> None:
        self._is_drawn = True
        self._stream.write(_CLEAR + text)
        self._stream.flush()

    async def _pause(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self._start_up.stopping.wait()
