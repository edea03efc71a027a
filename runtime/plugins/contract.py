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


class StepError(Exception):
    """A durable step was used in a way that cannot be recorded. The message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a step is tried, and how long it waits between two tries."""

    tries: int = 3
    delay: float = 1.0  # seconds before the second try
    factor: float = 2.0  # each further delay is so many times longer
    longest: float = 300.0

    def delay_after(self, failed: int) -> float | None:
        """Seconds to wait after so many failed tries; None when it is enough."""
        if failed >= self.tries:
            return None
        try:
            return float(min(self.delay * self.factor ** (failed - 1), self.longest))
        except OverflowError:  # after very many tries
            return float(self.longest)


ONCE = Retry(tries=1)
