"""What a handler of upgraded connections gets: the request, and the bytes from there on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import trio

from perdure.runtime.kernel.budget import Account
from perdure.runtime.port.refusal import PortRefusal, error_response
from perdure.runtime.port.wire import ByteWire


@dataclass(slots=True, eq=False, kw_only=True)
class Upgrade:
    """A request to go on as something else. Whoever handles it owns the stream until it returns.

    ``head`` is the request as HTTP/1.1, ``trailing`` what the client sent behind it already.
    """

    path: str
    query: bytes
    headers: Sequence[tuple[bytes, bytes]]
    client: tuple[str, int] | None
    server: tuple[str, int] | None
    scheme: str
    head: bytes
    trailing: bytes
    stream: trio.abc.Stream
    socket: trio.socket.SocketType | None  # to write to without waiting; None under TLS
    account: Account  # of the connection: what its peer makes us hold
    _wire: ByteWire = field(repr=False)
    _date: bytes = field(repr=False)

    async def refuse(self, code: str, message: str, *headers: tuple[bytes, bytes]) -> None:
        """Answer with an error of the table; the handler returns afterwards."""
        refusal = PortRefusal(code, message)
        await self._wire.write(error_response(refusal, *headers, date=self._date))
        await self._wire.linger()
