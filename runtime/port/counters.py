"""What a port has seen so far, for metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class PortCounters:
    """Counts since the start. Bytes are those of HTTP, without TLS and upgraded connections."""

    accepted: int = 0
    requests: int = 0
    upgrades: int = 0
    crashes: int = 0  # of the app or of an upgrade's handler
    protocol_errors: int = 0  # requests that are no HTTP
    stalled: int = 0  # connections aborted because the client took nothing
    bytes_in: int = 0
    bytes_out: int = 0
    refused: Counter[str] = field(default_factory=Counter)  # by code
