"""What a plain function gets as its first argument. Light: part of ``import perdure``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.runtime.process.kit import SyncRun


@dataclass(frozen=True, slots=True)
class SyncRunContext:
    """What an entry gets that is a plain function: the same, and nothing is awaited."""

    run: SyncRun  # what it offers is told in perdure.runtime.process.kit
