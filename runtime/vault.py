"""The vault: seals the secret values of a run until it has ended.

A seal is encrypted and authenticated (AES-256-GCM) and bound to its run: under another run's name
it does not open. What is sealed and what requests are hashed with have keys of their own, both made
from the one in the key file.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any, Final

import trio

from eventlog import cbor
from runtime.seals import MemorySeals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eventlog.env import Env
    from runtime.seals import Seals

FORMAT: Final = b"perdure-seal-1\n"
_NONCE: Final = 12
_THREADS: Final = 8  # each waits for a disk, none for another


class Vault:
    """Seals and opens, with one key."""

    def __init__(self, env: Env, seals: Seals | None = None) -> None:
        """Nothing is read or made before it is needed."""
        self._env = env
        self._seals: Seals = seals or MemorySeals()
        self._threads = trio.CapacityLimiter(_THREADS)
        self._making_key = trio.Lock()
        self._key: bytes | None = None

    async def seal(self, run_id: str, values: Mapping[str, Any]) -> None:
        """Put values away; when this returns they are on disk."""
        key = await self._key_for(b"seal")
        nonce = self._env.secret_bytes(_NONCE)

        def work() -> None:
            sealed = _aes(key).encrypt(nonce, cbor.encode(dict(values)), _bound_to(run_id))
            self._seals.put(run_id, FORMAT + nonce + sealed)

        await self._env.run_sync(work, limiter=self._threads)

    async def open(self, run_id: str) -> dict[str, Any]:
        """Give the values of a run: none if they are gone, or damaged, or another key's."""
        key = await self._key_for(b"seal")

        def work() -> dict[str, Any]:
            data = self._seals.get(run_id)
            return (None if data is None else _opened(key, run_id, data)) or {}

        return await self._env.run_sync(work, limiter=self._threads)

    async def drop(self, run_id: str) -> None:
        """Forget the values of a run."""
        await self._env.run_sync(self._seals.drop, run_id, limiter=self._threads)

    async def run_ids(self) -> list[str]:
        """Give the runs whose values are here."""
        return await self._env.run_sync(self._seals.run_ids, limiter=self._threads)

    async def hash_key(self) -> bytes:
        """Give the key that secret parts of requests are hashed with."""
        return await self._key_for(b"request-hash")

    async def _key_for(self, purpose: bytes) -> bytes:
        async with self._making_key:
            if self._key is None:
                self._key = await self._env.run_sync(
                    self._seals.key, self._env.secret_bytes, limiter=self._threads
                )
        return _derived(self._key, purpose)


def unsealed(key: bytes, run_id: str, data: bytes) -> dict[str, Any] | None:
    """Open what was sealed for a run with the key of the key file; None if it does not open."""
    return _opened(_derived(key, b"seal"), run_id, data)


def _derived(key: bytes, purpose: bytes) -> bytes:
    return hmac.digest(key, b"perdure/" + purpose + b"/1", "sha256")


def _opened(key: bytes, run_id: str, data: bytes) -> dict[str, Any] | None:
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - as _aes

    if not data.startswith(FORMAT):
        return None
    nonce, sealed = data[len(FORMAT) :][:_NONCE], data[len(FORMAT) + _NONCE :]
    try:
        values: dict[str, Any] = cbor.decode(_aes(key).decrypt(nonce, sealed, _bound_to(run_id)))
    except (InvalidTag, ValueError):
        return None
    return values


def _aes(key: bytes) -> Any:  # noqa: ANN401 - of a library that is imported when it is needed
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - costs time

    return AESGCM(key)


def _bound_to(run_id: str) -> bytes:
    return FORMAT + run_id.encode()
