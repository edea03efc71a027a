"""Sealing: what stands in the file of a seal, and what its key is made from.

A seal is encrypted and authenticated (AES-256-GCM) and bound to its run: under another run's name
it does not open. What is sealed and what requests are hashed with have keys of their own, both made
from the one in the key file.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any, Final

from perdure.eventlog import cbor

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT: Final = b"perdure-seal-1\n"
NONCE_BYTES: Final = 12


def sealed(key: bytes, nonce: bytes, run_id: str, values: Mapping[str, Any]) -> bytes:
    """Seal values for a run with the key of the key file; a nonce is never used twice."""
    hidden: bytes = _aes(key).encrypt(nonce, cbor.encode(dict(values)), _bound_to(run_id))
    return FORMAT + nonce + hidden


def unsealed(key: bytes, run_id: str, data: bytes) -> dict[str, Any] | None:
    """Open what was sealed for a run with the key of the key file; None if it does not open."""
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - as _aes

    if not data.startswith(FORMAT):
        return None
    nonce, hidden = data[len(FORMAT) :][:NONCE_BYTES], data[len(FORMAT) + NONCE_BYTES :]
    try:
        plain = _aes(key).decrypt(nonce, hidden, _bound_to(run_id))
        values: dict[str, Any] = cbor.decode(plain)
    except (InvalidTag, ValueError):
        return None
    return values


def hash_key(key: bytes) -> bytes:
    """Give the key that secret parts of requests are hashed with."""
    return _made_from(key, b"request-hash")


def _made_from(key: bytes, purpose: bytes) -> bytes:
    return hmac.digest(key, b"perdure/" + purpose + b"/1", "sha256")


def _aes(key: bytes) -> Any:  # noqa: ANN401 - of a library that is imported when it is needed
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - costs time

    return AESGCM(_made_from(key, b"seal"))


def _bound_to(run_id: str) -> bytes:
    return FORMAT + run_id.encode()
