"""Idempotency keys: what each stands for, as long as it holds.

A claim is written in the same append as the object it names. A caller that comes again with the
same key is given that object; one that asks for something else with it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from perdure.actors.claim import (
    CLAIM_EVENTS,
    KEYED_SCHEME,
    SCHEME,
    ObjectClaimed,
    Subject,
    claim_stream,
    is_over,
    keyed_hash,
    request_hash,
)
from perdure.eventlog.units import NANOSECONDS
from perdure.runtime.kernel.errors import OperationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from perdure.actors.claim import ClaimEvent
    from perdure.eventlog.env import Env
    from perdure.eventlog.record import Record
    from perdure.runtime.kernel.principal import Principal

CLAIM_WINDOW: Final = 24 * 3600 * NANOSECONDS


@dataclass(frozen=True, slots=True)
class Claim:
    """What a caller asks for with a key."""

    stream: str
    hashes: dict[str, str]  # of the request, by each scheme that a claim may have; ours first

    @property
    def scheme(self) -> str:
        """How the request is hashed."""
        return next(iter(self.hashes))

    @property
    def request_hash(self) -> str:
        """The hash of the request."""
        return self.hashes[self.scheme]


@dataclass(frozen=True, slots=True)
class Hidden:
    """Values of a part of a request, some of which are secret."""

    values: dict[str, Any]
    names: Sequence[str]  # of the secret ones


class Claims:
    """The keys of one log."""

    def __init__(self, env: Env, hash_key: Callable[[], Awaitable[bytes]] | None = None) -> None:
        """``hash_key`` gives the key of the HMAC that stands for a secret value in a hash."""
        self._env = env
        self._hash_key = hash_key

    async def asked(
        self,
        principal: Principal,
        operation: str,
        key: str,
        request: Mapping[str, Any],
        **parts: Hidden,
    ) -> Claim:
        """Say what a request with a key claims.

        ``parts`` are parts of the request with secret values: in the hash an HMAC stands for each,
        so that the hash tells nothing about them.
        """
        stream = claim_stream(principal.tenant, principal.user, operation, key)
        plain = {**request, **{name: part.values for name, part in parts.items()}}
        if not any(part.names for part in parts.values()):
            return Claim(stream, {SCHEME: request_hash(plain)})
        if self._hash_key is None:
            raise ValueError("a request with secrets is hashed with a key, and there is none")
        secret = await self._hash_key()
        keyed = {
            name: {
                **part.values,
                **{each: [keyed_hash(secret, part.values[each])] for each in part.names},
            }
            for name, part in parts.items()
        }
        return Claim(
            stream,
            {KEYED_SCHEME: request_hash({**request, **keyed}), SCHEME: request_hash(plain)},
        )

    def made(self, claim: Claim, subject: Subject, at: int, window: int | None) -> ObjectClaimed:
        """Give the event that binds a key to an object; without a window it never expires."""
        return ObjectClaimed(
            kind=subject.kind,
            object_id=subject.object_id,
            request_hash=claim.request_hash,
            scheme=claim.scheme,
            window=window,
            at=at,
        )

    async def holder(
        self,
        claim: Claim,
        newest: Record | None,
        has_ended: Callable[[Subject], Awaitable[bool]],
    ) -> Subject | None:
        """Give the object that a key stands for; None if it is free.

        Raise IDEMPOTENCY_CONFLICT if it was used to ask for something else.
        """
        if newest is None:
            return None
        made: ClaimEvent = CLAIM_EVENTS.decode(newest)
        if is_over(made, self._env.now(), has_ended=await has_ended(made.subject)):
            return None
        if made.request_hash != claim.hashes.get(made.scheme):
            raise OperationError(
                "IDEMPOTENCY_CONFLICT",
                "this idempotency key was used for another request",
                **{f"{made.subject.kind}_id": made.subject.object_id},
                expected=made.request_hash,
                actual=claim.request_hash,
            )
        return made.subject
