"""How a run ends that was stopped: canceled by somebody, or out of time."""

from perdure.actors.run.events import CancelRequested, RunCreated, RunError
from perdure.actors.run.status import CancelIntent, Outcome


def end_of_stopped(created: RunCreated, cancel: CancelRequested | None) -> tuple[Outcome, RunError]:
    """Give the end of a run whose entry was stopped: as its cancel request says, else timeout."""
    if cancel is None or cancel.intent is CancelIntent.TIMEOUT:
        return Outcome.TIMEOUT, timed_out(created)
    return Outcome.CANCELED, canceled(cancel.reason)


def timed_out(created: RunCreated) -> RunError:
    """The error of a run whose time is up."""
    return RunError(
        code="TIMEOUT",
        message=f"the run did not end within {created.timeout:g} seconds"
        if created.timeout is not None
        else "the run did not end in time",
        retriable=True,
    )


def canceled(reason: str | None) -> RunError:
    """The error of a run that was canceled."""
    return RunError(code="CANCELED", message=reason or "the run was canceled")
