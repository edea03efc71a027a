"""A claim: an idempotency key and what it stands for.

A claim is a stream without an actor. Its newest event decides. It is written in the same append as
the object it names, so a key and its object appear together or not at all. A claim lasts for its
window, and never ends before its object has.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Any, ClassVar, Final, NamedTuple
from urllib.parse import quote

from msgspec import Struct

from perdure.eventlog import cbor
from perdure.eventlog.registry import EventRegistry

CLAIM_EVENTS: Final = EventRegistry()
SCHEME: Final = "sha256-cbor-1"  # how requests are hashed; stored, so that it can change
KEYED_SCHEME: Final = "sha256-cbor-hmac-1"  # the same, with an HMAC in the place of each secret


class Subject(NamedTuple):
    """What a key stands for."""

    kind: str
    object_id: str


@CLAIM_EVENTS.register
class ClaimMade(Struct, frozen=True, kw_only=True):
    """A key stands for a run, from now on and for a while."""

    event_name: ClassVar[str] = "claim.made"
    run_id: str
    request_hash: str
    scheme: str
    window: int  # nanoseconds
    at: int

    @property
    def subject(self) -> Subject:
        """What the key stands for."""
        return Subject("run", self.run_id)


@CLAIM_EVENTS.register
class ObjectClaimed(Struct, frozen=True, kw_only=True):
    """A key stands for an object of any kind, from now on, for a while or for good."""

    event_name: ClassVar[str] = "claim.object-claimed"
    kind: str
    object_id: str
    request_hash: str
    scheme: str
    window: int | None  # nanoseconds; None: for good
    at: int

    @property
    def subject(self) -> Subject:
        """What the key stands for."""
        return Subject(self.kind, self.object_id)


ClaimEvent = ClaimMade | ObjectClaimed


def is_over(claim: ClaimEvent, now: int, *, has_ended: bool) -> bool:
    """Tell whether a key is free again: its object has ended, and its window is over."""
    return has_ended and claim.window is not None and now >= claim.at + claim.window


def claim_stream(tenant: str, principal: str, operation: str, key: str) -> str:
    """Name the stream of a key. Keys of different people never meet."""
    whose = f"{quote(tenant, safe='')}/{quote(principal, safe='')}"
    return f"claim/{whose}/{operation}/{sha256(key.encode()).hexdigest()}"


def request_hash(request: dict[str, Any]) -> str:
    """Tell equal requests from different ones, whatever the order of their parts."""
    return sha256(cbor.encode(_ordered(request))).hexdigest()


def keyed_hash(key: bytes, value: Any) -> str:  # noqa: ANN401 - any part of a request
    """Stand for a secret: equal ones are equal, and without the key nothing can be guessed."""
    return hmac.new(key, cbor.encode(_ordered(value)), sha256).hexdigest()


def _ordered(value: Any) -> Any:  # noqa: ANN401 - any part of a request
    if isinstance(value, dict):
        return {name: _ordered(value[name]) for name in sorted(value)}
    if isinstance(value, list | tuple):
        return [_ordered(item) for item in value]
    return value
