"""What an entry gets as its first argument. Light: part of ``import perdure``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.runtime.plugins.current_run import CurrentRun
    from perdure.runtime.plugins.sync_run import SyncRun


@dataclass(frozen=True, slots=True)
class RunContext:
    """What an async entry gets as its first argument."""

    run: CurrentRun  # what it offers is told in perdure.runtime.plugins.current_run


@dataclass(frozen=True, slots=True)
class SyncRunContext:
    """What an entry gets that is a plain function: the same, and nothing is awaited."""

    run: SyncRun
