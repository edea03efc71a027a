"""What an entry's author can raise, ask for and rely on. Light: part of ``import perdure``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class RunCancelled(Exception):
    """The run was asked to end. Let it pass, after cleaning up."""


class PluginError(Exception):
    """An error of the entry's own, with a code that callers can rely on."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        retriable: bool = False,
    ) -> None:
        """Say what happened, for programs and for people."""
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.details = details
        self.retriable = retriable


class FailedStep(PluginError):
    """A step has failed for good, now or before a crash. The cause, if it is known, is attached."""


class StepTimeout(PluginError):
    """A try of a step took longer than it may. Another try may be faster."""

    def __init__(self, name: str, seconds: float) -> None:
        """Name the step and its time limit."""
        message = f"a try of step {name!r} took longer than its {seconds:g} seconds"
        super().__init__("STEP_TIMEOUT", message, retriable=True)


class StepError(Exception):
    """A durable step was used in a way that cannot be recorded. The message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a step is tried, after which errors, and how long it waits between two tries.

    A ``PluginError`` that is not ``retriable`` is the last one, whatever ``on`` says.
    """

    tries: int = 3
    delay: float = 1.0  # seconds before the second try
    factor: float = 2.0  # each further delay is so many times longer
    longest: float = 300.0  # seconds, of any delay before its jitter
    jitter: float = 0.0  # up to 1.0: each delay is longer by up to this part of it, at random
    on: type[Exception] | tuple[type[Exception], ...] = Exception  # another error is the last one

    def delay_after(self, failed: int, chance: float = 0.0) -> float | None:
        """Seconds to wait after so many failed tries; None when it is enough.

        ``chance``, from 0 to 1, is how much of the jitter is added.
        """
        if failed >= self.tries:
            return None
        try:
            delay = float(min(self.delay * self.factor ** (failed - 1), self.longest))
        except OverflowError:  # after very many tries
            delay = float(self.longest)
        return delay * (1 + self.jitter * chance)

    def covers(self, error: BaseException) -> bool:
        """Tell whether a step is tried again after an error, if tries are left."""
        if isinstance(error, PluginError) and not error.retriable:
            return False
        return isinstance(error, (StepTimeout, self.on))


ONCE = Retry(tries=1)
