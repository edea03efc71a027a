"""The command line: parses, asks, shows; knows none of the rules.

Its modules import what they need when a command runs, so that ``perdure --help`` answers at once.
"""

import os
import signal
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_INTERRUPTED = 130  # as in ExitCode, which is not imported yet


def main(*args: Any, **options: Any) -> None:
    """Run a command. A signal ends the process while its modules are still being imported."""
    before = [signal.signal(number, lambda *_: os._exit(_INTERRUPTED)) for number in _SIGNALS]
    from perdure.runtime.cli.program import main as program

    for number, handler in zip(_SIGNALS, before, strict=True):
        signal.signal(number, handler)
    from perdure.runtime.kernel.terminal.output import end_by_sigpipe, name_output

    name_output()
    try:
        program(*args, **options)
    except BrokenPipeError:  # the error message could not be written
        end_by_sigpipe()
