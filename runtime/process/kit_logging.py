"""What an entry in a process gives to the standard ``logging`` module is in the log of its run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from perdure.runtime.plugins.contract import PluginError, RunCancelled
from perdure.runtime.plugins.run_messages import Log

if TYPE_CHECKING:
    from perdure.runtime.process.pipes import Talk

_formatter = logging.Formatter()


class RunHandler(logging.Handler):
    """Gives each record to the run that the process executes, as a line of it."""

    def __init__(self) -> None:
        """Wait for a run."""
        super().__init__()
        self.talk: Talk | None = None

    def install(self) -> None:
        """Hear what is logged from now on, from the level that inline entries are heard at."""
        logging.root.addHandler(self)
        if logging.root.level == logging.WARNING:  # which is what nobody has set
            logging.root.setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        """Say a line. What is too long to be said, or comes when the run is over, is not."""
        if self.talk is None:
            return
        try:
            self.talk.say(Log(text=_formatter.format(record), level=record.levelname.lower()))
        except (RunCancelled, PluginError):
            return
        except Exception:  # noqa: BLE001 - as every handler: whatever a stranger's record raises
            self.handleError(record)
