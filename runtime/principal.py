"""Who asks: every operation is somebody's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Principal:
    """A user of a tenant."""

    tenant: str
    user: str

    def __str__(self) -> str:
        return f"{self.tenant}/{self.user}"


LOCAL: Final = Principal("local", "local")
