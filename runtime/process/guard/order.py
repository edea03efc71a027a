"""What the server tells a guard, before it says anything else."""

from __future__ import annotations

import marshal
import os

# Namespaces, by the numbers that the kernel has for them.
NEW_USER = 0x10000000
NEW_NETWORK = 0x40000000
NEW_PIDS = 0x20000000
NEW_MOUNTS_IPC = 0x00020000 | 0x08000000

DEVICES = ("null", "zero", "full", "random", "urandom")  # that every process has

_LENGTH = 4  # bytes, of the number that says how long an order is

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

    from .cgroup import Group

Places = list[tuple[str, str]]  # "read", "write", "scratch", "hidden" or "list", and a path
Links = list[tuple[str, str]]  # from where, to where
Limits = list[tuple[int, int]]  # a resource, as setrlimit knows it, and its bound


class ServerGone(Exception):
    """The server has ended before it said what to do."""


class Order:
    """How a process is to be started.

    With namespaces it sees nothing but some places. Without them it may open nothing but these, if
    it is ``restricted``, and else all that its server may.
    """

    def __init__(
        self,
        *,
        namespaces: int = 0,
        places: Places | None = None,
        links: Links | None = None,
        limits: Limits | None = None,
        groups: list[Group] | None = None,
        unprivileged: bool = False,
        restricted: bool = False,
    ) -> None:
        """Without anything, start a process that may do what its server may do."""
        self.namespaces = namespaces
        self.places: Places = places or []
        self.links: Links = links or []
        self.limits: Limits = limits or []
        self.groups: list[Group] = groups or []
        self.unprivileged = unprivileged
        self.restricted = restricted

    def encode(self) -> bytes:
        """Give the order as bytes; both ends are the same interpreter."""
        data = marshal.dumps(self.__dict__)
        return len(data).to_bytes(_LENGTH, "big") + data

    @classmethod
    def receive(cls, descriptor: int) -> Self:
        """Read an order to its last byte."""
        data = _read(descriptor, int.from_bytes(_read(descriptor, _LENGTH), "big"))
        return cls(**marshal.loads(data))  # noqa: S302 - the server's own words


def _read(descriptor: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = os.read(descriptor, count - len(data))
        if not piece:
            raise ServerGone
        data += piece
    return data
