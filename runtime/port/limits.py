"""What one client may cost: bytes, seconds and connections."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PortLimits:
    """Bounds of a port. Times are in seconds, sizes in bytes.

    A body, and what a client takes of a response, are bounded by progress and not by time: an
    upload may last for hours as long as it moves.
    """

    head_bytes: int = 32 << 10  # request line and headers
    head_fields: int = 128  # headers of one request
    body_bytes: int = 1 << 20  # a route may raise it by scope["extensions"]["perdure.body_limit"]
    handshake: float = 10.0  # for TLS
    first_byte: float = 30.0  # of a new connection
    head_time: float = 10.0  # from the first byte of a head to its last
    body_window: float = 10.0  # in so much waiting for a body ...
    body_progress: int = 64 << 10  # ... so much of it has to come: what a modem sends
    send_time: float = 30.0  # for a piece of 64 KiB to be taken
    idle: float = 75.0  # between two requests of a connection
    linger: float = 2.0  # for a client to read why it was refused
    connections: int = 10_000
    connections_per_peer: int | None = 256  # an address, of IPv6 a network of 64 bits
    count_loopback: bool = False  # a proxy on this machine brings everybody from one address
    requests_per_connection: int | None = None
