"""The vault: seals the secret values of a run until it has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from perdure.runtime.secrets.encryption import NONCE_BYTES, hash_key, sealed, unsealed
from perdure.runtime.secrets.sealed_files import MemorySeals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perdure.eventlog.env import Env
    from perdure.runtime.secrets.sealed_files import Seals

_THREADS: Final = 8  # each waits for a disk, none for another


class Vault:
    """Seals and opens, with one key."""

    def __init__(self, env: Env, seals: Seals | None = None) -> None:
        """Nothing is read or made before it is needed."""
        self._env = env
        self._seals: Seals = seals or MemorySeals()
        self._threads = trio.CapacityLimiter(_THREADS)
        self._making_key = trio.Lock()
        self._known_key: bytes | None = None

    async def seal(self, run_id: str, values: Mapping[str, Any]) -> None:
        """Put values away; when this returns they are on disk."""
        key = await self._key()
        nonce = self._env.secret_bytes(NONCE_BYTES)

        def work() -> None:
            self._seals.put(run_id, sealed(key, nonce, run_id, values))

        await self._env.run_sync(work, limiter=self._threads)

    async def open(self, run_id: str) -> dict[str, Any]:
        """Give the values of a run: none if they are gone, or damaged, or another key's."""
        key = await self._key()

        def work() -> dict[str, Any]:
            data = self._seals.get(run_id)
            return (None if data is None else unsealed(key, run_id, data)) or {}

        return await self._env.run_sync(work, limiter=self._threads)

    async def drop(self, run_id: str) -> None:
        """Forget the values of a run."""
        await self._env.run_sync(self._seals.drop, run_id, limiter=self._threads)

    async def run_ids(self) -> list[str]:
        """Give the runs whose values are here."""
        return await self._env.run_sync(self._seals.run_ids, limiter=self._threads)

    async def hash_key(self) -> bytes:
        """Give the key that secret parts of requests are hashed with."""
        return hash_key(await self._key())

    async def _key(self) -> bytes:
        async with self._making_key:
            if self._known_key is None:
                self._known_key = await self._env.run_sync(
                    self._seals.key, self._env.secret_bytes, limiter=self._threads
                )
        return self._known_key
