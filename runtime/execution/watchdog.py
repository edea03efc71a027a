"""The watchdog: it names an inline entry that blocks the event loop.

A task of the loop beats; a thread listens. When no beat has come for a second, the thread looks at
what the loop is doing, finds the execution that is on its stack, and logs it, once for each time.
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import TYPE_CHECKING, Final

from perdure.runtime.execution.execution import Execution

if TYPE_CHECKING:
    from types import FrameType

    from perdure.eventlog.env import Env

PATIENCE: Final = 1.0  # seconds without a beat
BEAT: Final = 0.25
_log = logging.getLogger("perdure.watchdog")


class Watchdog:
    """Watches the event loop that runs it."""

    def __init__(self, env: Env) -> None:
        """Nothing is watched before ``run``."""
        self._env = env
        self._beat = threading.Event()
        self._stopped = threading.Event()

    async def run(self) -> None:
        """Beat until cancelled, with a thread that listens."""
        listener = threading.Thread(  # noqa: TID251 - it goes on when the loop does not
            target=self._listen, args=(threading.get_ident(),), name="perdure-watchdog", daemon=True
        )
        listener.start()
        try:
            while True:
                self._beat.set()
                await self._env.sleep(BEAT)
        finally:
            self._stopped.set()
            self._beat.set()

    def _listen(self, loop_thread: int) -> None:
        while not self._stopped.is_set():
            if self._beat.wait(PATIENCE):
                self._beat.clear()
                self._stopped.wait(BEAT)
                continue
            self._tell(sys._current_frames().get(loop_thread))  # noqa: SLF001 - the documented way
            self._beat.wait()

    def _tell(self, frame: FrameType | None) -> None:
        """Say who it is that blocks the loop."""
        place = f"{frame.f_code.co_filename}, line {frame.f_lineno}" if frame is not None else "?"
        while frame is not None:
            execution = frame.f_locals.get("self")
            if isinstance(execution, Execution):
                created = execution.run.created
                _log.warning(
                    "%s.%s (run %s) blocks the event loop for more than %g s at %s:"
                    " await, or make it a plain function, which runs in a process",
                    created.plugin_id,
                    created.entry_id,
                    created.run_id,
                    PATIENCE,
                    place,
                )
                return
            frame = frame.f_back
        _log.warning("something blocks the event loop for more than %g s at %s", PATIENCE, place)
