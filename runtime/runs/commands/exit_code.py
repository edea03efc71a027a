"""What the end of a run tells a script."""

from __future__ import annotations

from perdure.runtime.kernel.terminal.invocation import ExitCode


def exit_code_of(status: str) -> ExitCode:
    """Give the exit code for a run's end."""
    from perdure.actors.run.status import Outcome

    return ExitCode[Outcome(status).name]
