"""Idempotency keys: what each stands for, as long as it holds.

A claim is written in the same append as the run it names (``runtime.runs.creation``). Whoever
asks again with the same key is given that run; whoever asks for something else with it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from perdure.actors.claim import (
    CLAIM_EVENTS,
    KEYED_SCHEME,
    SCHEME,
    ClaimMade,
    claim_stream,
    keyed_hash,
    request_hash,
)
from perdure.actors.run.stream import stream_of
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.secrets.secret import is_sealed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perdure.actors.folded import Folded
    from perdure.actors.run.core import Run
    from perdure.actors.run.events import RunCreated
    from perdure.eventlog.record import Record
    from perdure.runtime.execution.host import Host
    from perdure.runtime.kernel.principal import Principal

CLAIM_WINDOW: Final = 24 * 3600 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class Claim:
    """What somebody asks for with a key."""

    stream: str
    hashes: dict[str, str]  # of the request, by each scheme that a claim may have; ours first


class Claims:
    """The keys of one host's runs."""

    def __init__(self, host: Host, *, window: int = CLAIM_WINDOW) -> None:
        """Keys are free again after a window, in nanoseconds, and when their run has ended."""
        self._host = host
        self._window = window

    async def asked(
        self,
        principal: Principal,
        operation: str,
        key: str,
        request: Mapping[str, Any],
        **given: tuple[dict[str, Any], dict[str, Any]],
    ) -> Claim:
        """Say what a request with a key claims.

        ``given`` are parts of it with values for arguments, each with what is kept of them. With
        values that were sealed an HMAC stands for each, so that the hash tells nothing.
        """
        stream = claim_stream(principal.tenant, principal.user, operation, key)
        plain = {**request, **{part: values for part, (values, _) in given.items()}}
        hidden = {part: _to_hide(values, kept) for part, (values, kept) in given.items()}
        if not any(hidden.values()):
            return Claim(stream, {SCHEME: request_hash(plain)})
        secret = await self._host.secrets.hash_key()
        keyed = {
            part: {
                **values,
                **{name: [keyed_hash(secret, values[name])] for name in hidden[part]},
            }
            for part, (values, _) in given.items()
        }
        return Claim(
            stream,
            {KEYED_SCHEME: request_hash({**request, **keyed}), SCHEME: request_hash(plain)},
        )

    def made(self, claim: Claim, created: RunCreated) -> ClaimMade:
        """Give the event that lets a key stand for a run."""
        scheme, asked = next(iter(claim.hashes.items()))
        return ClaimMade(
            run_id=created.run_id,
            request_hash=asked,
            scheme=scheme,
            window=self._window,
            at=created.at,
        )

    async def holder(self, claim: Claim, newest: Record | None) -> Folded[Run] | None:
        """Give the run that a key stands for; None if it is free.

        Raise IDEMPOTENCY_CONFLICT if it was used to ask for something else.
        """
        if newest is None:
            return None
        made: ClaimMade = CLAIM_EVENTS.decode(newest)
        folded = await self._host.runs.look(stream_of(made.run_id))
        over = made.is_over(self._host.env.now(), run_has_ended=folded.state.status.is_terminal)
        if over:
            return None
        if made.request_hash != claim.hashes.get(made.scheme):
            raise OperationError(
                "IDEMPOTENCY_CONFLICT",
                "this idempotency key was used for another request",
                run_id=made.run_id,
                expected=made.request_hash,
                actual=next(iter(claim.hashes.values())),
            )
        return folded


def _to_hide(values: dict[str, Any], kept: dict[str, Any]) -> list[str]:
    """Name the values that were sealed when the request was accepted."""
    return [
        name
        for name, value in kept.items()
        if name in values and is_sealed(value) and not is_sealed(values[name])
    ]
