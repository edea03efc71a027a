"""What an async entry gets as its first argument. Light: part of ``import perdure``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.runtime.execution.current_run import CurrentRun


@dataclass(frozen=True, slots=True)
class RunContext:
    """What an entry gets as its first argument."""

    run: CurrentRun  # what it offers is told in perdure.runtime.execution.current_run
