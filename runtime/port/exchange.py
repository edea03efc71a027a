"""One request and its response, as ASGI has it.

The app runs in the connection's task and nothing else does. ``receive`` reads when it is called:
first the body, then, once that is complete, it waits for the end of the exchange. What ends it:

* the response is complete;
* the connection breaks, on reading or on writing;
* the client breaks a rule in its body. It is answered at once, if nothing was sent so far.

All of them are ``http.disconnect``; sending afterwards raises ``Disconnected``, an ``OSError``, as
ASGI 2.4 wants it. The app is never cancelled: what it had begun it finishes.

A client that closes its side after the request is no disconnect: it may still read, as ``nc -N``
does. Whether it does is seen when something is sent: the first bytes that nobody takes come back
as a reset, the next ones fail. A stream with heartbeats so loses a silent client after two of them.
An app that sends nothing yet can ask for the moment by the extension ``perdure.hung_up``.

What an exchange keeps in memory is held in the account of its connection: its head, the part of the
body or of the response that is on its way, and what the app says that it keeps of the request
(extension ``perdure.hold``). What there is no room for is answered with OVERLOADED.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import h11
import trio

from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.port.body_stream import BodyStream
from perdure.runtime.port.refusal import PortRefusal, PortRefused, error_response, reason_phrase
from perdure.runtime.port.wire import PIECE, ByteWire, Disconnected

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from perdure.runtime.kernel.budget import Hold
    from perdure.runtime.port.head import Head, HeadBuffer
    from perdure.runtime.port.limits import PortLimits

    Message = MutableMapping[str, Any]

SPEC: Final = {"version": "3.0", "spec_version": "2.4"}
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_NO_BODY: Final = frozenset({204, 304})


class Exchange:
    """A request that is being answered."""

    def __init__(
        self,
        head: Head,
        wire: ByteWire,
        buffer: HeadBuffer,
        limits: PortLimits,
        held: Hold,
        date: bytes,
    ) -> None:
        """Take a head, for which memory is held; ``buffer`` has what came behind it."""
        self.head = head
        self.status = 0  # of the response, once there is one
        self.closing = False  # say `connection: close`
        self.started = False  # something of the response was sent
        self.finished = False
        self.refusal: PortRefusal | None = None  # what the client was told instead of an answer
        self._is_due = False  # to say so
        self._wire = wire
        self._buffer = buffer
        self._limits = limits
        self._date = date
        self._held = held
        self._kept = held.size  # until the exchange is over
        self.body = BodyStream(head, wire, buffer, limits)
        self._body_given = False  # the app has seen the end of it
        self._start: h11.Response | None = None
        self._bodyless = False
        self._over = trio.Event()
        self._waiting: trio.CancelScope | None = None

    def scope(self) -> dict[str, Any]:
        """Give the scope for the app, as far as it is about this request."""
        head = self.head
        return {
            "type": "http",
            "asgi": SPEC,
            "http_version": head.version,
            "method": head.method,
            "path": head.path,
            "raw_path": head.raw_path,
            "query_string": head.query,
            "root_path": "",
            "headers": head.headers,
            "extensions": {
                "perdure.body_limit": self.limit_body,
                "perdure.hung_up": self.hung_up,
                "perdure.hold": self.keep,
            },
        }

    def limit_body(self, size: int) -> None:
        """Set how large the body of this request may be; called before it is read."""
        self.body.limit = size

    def keep(self, size: int) -> None:
        """Count so many bytes more that the app keeps until the exchange is over."""
        self._held.grow(size)
        self._kept += size

    @property
    def keeps_alive(self) -> bool:
        """Whether another request may follow on this connection."""
        return self.finished and self.head.protocol.our_state is h11.DONE and not self._wire.gone

    # --- receive -----------------------------------------------------------------------------

    async def receive(self) -> Message:
        """Give the app what happens next."""
        if self._wire.gone or self.finished or self.refusal is not None:
            await trio.lowlevel.checkpoint()
            return {"type": "http.disconnect"}
        if self._body_given:
            return await self._disconnect()
        try:
            payload = await self.body.read()
            self._held.resize(self._kept + len(payload))
        except Disconnected:
            return {"type": "http.disconnect"}
        except PortRefused as error:
            await self._refuse(error.refusal)
            return {"type": "http.disconnect"}
        except OperationError as error:
            await self._refuse(PortRefusal.of(error))
            return {"type": "http.disconnect"}
        self._body_given = self.body.done
        return {"type": "http.request", "body": payload, "more_body": not self._body_given}

    async def _disconnect(self) -> Message:
        """Wait for the end of the exchange."""
        await self.hung_up()
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def hung_up(self) -> None:
        """Wait until the client closes its side, or all is over; what it sends is kept for later.

        It may still read. Of one that sends more than is kept, only the end is seen.
        """
        while not self.finished and not self._wire.gone and not self._wire.ended:
            if len(self._buffer) > self._limits.head_bytes:
                await self._over.wait()
                return
            with trio.CancelScope() as self._waiting:
                try:
                    self._buffer.add(await self._wire.read())
                except Disconnected:
                    self._over.set()
                except OperationError:  # there is no room: it is read no further
                    self._wire.abort()
                    self._over.set()
            self._waiting = None

    # --- send --------------------------------------------------------------------------------

    async def send(self, message: Message) -> None:
        """Take a part of the response from the app."""
        if self._wire.gone or self.refusal is not None:
            raise Disconnected("the client is gone")
        kind = message["type"]
        if kind == "http.response.start":
            self._begin(message)
        elif kind == "http.response.body":
            await self._send_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise ValueError(f"there is no message {kind!r} to send")

    def _begin(self, message: Message) -> None:
        """Keep the head of the response until something of its body comes."""
        if self.status:
            raise RuntimeError("the response has begun already")
        headers = [(bytes(name), bytes(value)) for name, value in message.get("headers", ())]
        if not any(name.lower() == b"date" for name, _ in headers):
            headers.append((b"date", self._date))
        if self.closing or self.body.is_awaited:
            headers.append((b"connection", b"close"))
        status = message["status"]
        self._start = h11.Response(
            status_code=status, headers=headers, reason=reason_phrase(status)
        )
        self._bodyless = self.head.method == "HEAD" or status in _NO_BODY
        self.status = status

    async def _send_body(self, body: bytes, *, more: bool) -> None:
        if not self.status or self.finished:
            raise RuntimeError("the response has not begun or is complete already")
        try:
            self._held.resize(self._kept + len(body))
        except OperationError as error:
            if self.head.method in _READING:  # what was written has to be told
                self._refuse_response(PortRefusal.of(error))
                raise Disconnected("there is no room for what it was to be sent") from error
        out = self._framed(body, more=more)
        try:
            for part in out[:-1]:
                await self._wire.write(part)
            if more:
                await self._wire.write(out[-1])
            else:
                await self._wire.write_last(out[-1])
        except Disconnected:
            self._end()
            raise
        finally:
            self._held.resize(self._kept)

    def _framed(self, body: bytes, *, more: bool) -> list[bytes]:
        """Give the bytes to send; a large body is among them as it is, without a copy of it."""
        send = self.head.protocol.send_with_data_passthrough
        out: list[bytes] = []
        if self._start is not None:
            out += send(self._start) or ()
            self._start = None
        if body and not self._bodyless:
            out += send(h11.Data(data=body)) or ()
        if not more:
            out += send(h11.EndOfMessage()) or ()
            self._finish()
        self.started = True
        is_large = len(body) > PIECE and not self._bodyless
        return out if is_large else [b"".join(out)]

    def _finish(self) -> None:
        self.finished = True
        self._end()

    def _end(self) -> None:
        """Wake who waits for the end."""
        self._over.set()
        if self._waiting is not None:
            self._waiting.cancel()

    # --- ends that are not the app's -------------------------------------------------------------

    async def _refuse(self, refusal: PortRefusal) -> None:
        """Answer in the place of the app, or break off what it has begun to send."""
        self.refusal = refusal
        if self.started:
            self._wire.abort()
        else:
            await self.answer(refusal)

    def _refuse_response(self, refusal: PortRefusal) -> None:
        """Break the response off, or have the client told once the app has let go of it."""
        self.refusal = refusal
        if self.started:
            self._wire.abort()
        else:
            self._is_due = True

    async def settle(self) -> None:
        """Tell the client why there is no response, if that is due."""
        if self._is_due and self.refusal is not None:
            await self.answer(self.refusal)

    async def answer(self, refusal: PortRefusal) -> None:
        """Answer with an error, as the last thing on this connection."""
        only_head = self.head.method == "HEAD"
        self.status = refusal.status
        self._start = None
        self._finish()
        with suppress(Disconnected):
            await self._wire.write(error_response(refusal, date=self._date, head_only=only_head))

    def abandon(self) -> None:
        """Break off a response that cannot be completed: the client must not take it for whole."""
        self._wire.abort()
        self._end()
