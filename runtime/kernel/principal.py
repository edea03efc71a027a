"""Who asks, and what they may do: every operation is somebody's."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Permission(StrEnum):
    """What a principal can be allowed to do."""

    READ = "read"  # look at runs, what they put out, and what can be run
    RUN = "run"  # create runs, retry them, answer their questions
    CANCEL = "cancel"  # ask runs to end
    OPERATE = "operate"  # what concerns all tenants: the raw log, and collecting blobs

    __hash__ = str.__hash__  # that of an enumeration is slow


EVERYTHING: Final = frozenset(Permission)


@dataclass(frozen=True, slots=True)
class Principal:
    """A user of a tenant."""

    tenant: str
    user: str
    permissions: frozenset[Permission] = EVERYTHING

    def __str__(self) -> str:
        return f"{self.tenant}/{self.user}"


LOCAL: Final = Principal("local", "local")


def principal_of(request: object) -> Principal:  # noqa: ARG001 - identity comes here
    """Say who asks over the network. For now everybody who reaches the port is the local user."""
    return LOCAL
