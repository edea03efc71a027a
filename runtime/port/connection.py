"""One connection: one task, one failure boundary, one request after the other."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import trio

from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.port.body import body_of
from perdure.runtime.port.exchange import Exchange
from perdure.runtime.port.head import HeadBuffer
from perdure.runtime.port.refusal import PortRefusal, PortRefused, error_response, no_content
from perdure.runtime.port.upgrade import Upgrade
from perdure.runtime.port.wire import ByteWire, Disconnected, raw_socket

if TYPE_CHECKING:
    from perdure.runtime.kernel.budget import Account, Hold
    from perdure.runtime.port.head import Head
    from perdure.runtime.port.port import Port, UpgradeHandler

log: Final = logging.getLogger("perdure.port")
access: Final = logging.getLogger("perdure.port.access")

_HEAD_COPIES: Final = 2  # as it came, and in parts
_SLOW: Final = "the head of the request took too long; send it at once, or again"
_CRASHED: Final = PortRefusal("INTERNAL", "something went wrong here; it was logged")


class HttpConnection:
    """A client, from its first byte to its last."""

    def __init__(self, port: Port, stream: trio.abc.Stream, account: Account) -> None:
        """Take an accepted stream; under TLS its hands are shaken."""
        self.wire = ByteWire(stream, port.limits, port.counters)
        self.scheme = "https" if isinstance(stream, trio.SSLStream) else "http"
        self.client, self.server = _addresses(stream)
        self._port = port
        self._limits = port.limits
        self._account = account
        self._buffer = HeadBuffer(port.limits, account)
        self._reading: trio.CancelScope | None = None  # while it waits for a head
        self._exchange: Exchange | None = None
        self._requests = 0

    def drain(self) -> None:
        """Close now if nothing is under way; else the next response to begin is the last."""
        if self._exchange is not None:
            self._exchange.closing = True
        elif self._reading is not None and not len(self._buffer):
            self._reading.cancel()

    async def run(self) -> None:
        """Serve until either side has had enough. Nothing that goes wrong here goes further."""
        try:
            try:
                while await self._serve_one():
                    pass
            except* Disconnected:
                self.wire.gone = True
            except* Exception:
                self._port.counters.crashes += 1
                log.exception("a connection failed")
                self.wire.abort()
        finally:
            await self.wire.close()

    async def _serve_one(self) -> bool:
        """Serve a request; tell whether another may follow."""
        head = None
        try:
            head = await self._next_head()
            if head is None:
                return False
            self._requests += 1
            self._port.counters.requests += 1
            self._pass_gate(head)
            held = self._account.hold(_HEAD_COPIES * head.size)
        except PortRefused as error:
            await self._refuse(error.refusal, head)
            return False
        except OperationError as error:
            await self._refuse(PortRefusal.of(error), head)
            return False
        with held:
            if head.target == b"*":
                await self.wire.write(no_content(date=self._port.date()))
                return False
            if head.wants_websocket and self._port.upgrade is not None:
                await self._upgrade(head, self._port.upgrade)
                return False
            return await self._respond(head, held)

    # --- heads -------------------------------------------------------------------------------

    async def _next_head(self) -> Head | None:
        """Wait for a head; None if there is none to come."""
        limits, buffer = self._limits, self._buffer
        wait = limits.idle if self._requests else limits.first_byte
        if len(buffer):  # the client sends ahead; others want to be served too
            await trio.lowlevel.checkpoint()
            head = buffer.next_head()
            if head is not None:
                return head
            wait = limits.head_time
        elif self._port.draining:
            return None
        with trio.CancelScope(deadline=trio.current_time() + wait) as scope:
            self._reading = scope
            try:
                return await self._read_head(scope)
            finally:
                self._reading = None
        if len(buffer):
            raise PortRefused("REQUEST_TIMEOUT", _SLOW)
        return None

    async def _read_head(self, scope: trio.CancelScope) -> Head | None:
        buffer = self._buffer
        while True:
            begins = not len(buffer)
            data = await self.wire.read()
            if not data:
                break
            buffer.add(data)
            head = buffer.next_head()
            if head is not None:
                return head
            if begins:
                scope.deadline = trio.current_time() + self._limits.head_time
        if len(buffer):
            raise PortRefused("BAD_REQUEST", "the request ends within its head; add an empty line")
        return None

    def _pass_gate(self, head: Head) -> None:
        named = head.named
        refusal = self._port.gate.refuses(
            named.get(b"host"), named.get(b"origin"), scheme=self.scheme.encode()
        )
        if refusal is not None:
            raise PortRefused(refusal.code, refusal.message)

    async def _refuse(self, refusal: PortRefusal, head: Head | None) -> None:
        """Answer a request that the app does not get, and read nothing after it."""
        self._count(refusal)
        self._buffer.clear()
        only_head = head is not None and head.method == "HEAD"
        await self.wire.write(error_response(refusal, date=self._port.date(), head_only=only_head))
        await self.wire.linger()

    def _count(self, refusal: PortRefusal) -> None:
        counters = self._port.counters
        counters.refused[refusal.code] += 1
        counters.protocol_errors += refusal.code == "BAD_REQUEST"
        log.debug("refused %s: %s", self.client, refusal.code)

    # --- requests ----------------------------------------------------------------------------

    async def _respond(self, head: Head, held: Hold) -> bool:
        """Let the app answer; tell whether another request may follow."""
        port = self._port
        exchange = Exchange(head, self.wire, self._buffer, self._limits, held, port.date())
        exchange.closing = port.draining or self._requests == self._limits.requests_per_connection
        self._exchange = exchange
        try:
            await port.app(self._scope(exchange), exchange.receive, exchange.send)
            if not exchange.finished and not self.wire.gone:
                raise RuntimeError("the app has returned before its response was complete")  # noqa: TRY301 - the same fault as raising
        except Exception as error:  # noqa: BLE001 - the boundary of an app
            await self._app_failed(exchange, error)
        finally:
            self._exchange = None
        await exchange.settle()
        if access.isEnabledFor(logging.DEBUG):
            access.debug("%s %s %s %d", self.client, head.method, head.path, exchange.status)
        if exchange.refusal is not None:
            self._count(exchange.refusal)
        elif exchange.keeps_alive and await exchange.body.drain():
            return len(self._buffer) > 0 or not self.wire.ended
        if not exchange.body.done or len(self._buffer):
            await self.wire.linger()
        return False

    def _scope(self, exchange: Exchange) -> dict[str, Any]:
        scope = exchange.scope()
        scope["scheme"] = self.scheme
        scope["client"] = self.client
        scope["server"] = self.server
        return scope

    async def _app_failed(self, exchange: Exchange, error: Exception) -> None:
        """Say so to the client if it can still be said, and otherwise break off."""
        if exchange.refusal is not None or self.wire.gone:
            log.debug("the app has noticed that its client is gone", exc_info=error)
            return
        self._port.counters.crashes += 1
        log.error("the app failed at %s %s", *_named(exchange.head), exc_info=error)
        if exchange.finished:
            return
        if exchange.started:
            exchange.abandon()
        else:
            await exchange.answer(_CRASHED)

    # --- upgrades ----------------------------------------------------------------------------

    async def _upgrade(self, head: Head, handler: UpgradeHandler) -> None:
        """Let a handler have the connection."""
        if not body_of(head).done:
            await self._refuse(PortRefusal("BAD_REQUEST", "send a handshake without a body"), head)
            return
        self._port.counters.upgrades += 1
        lines = [f"{head.method} ".encode() + head.target + b" HTTP/1.1\r\n"]
        lines += [b"%s: %s\r\n" % header for header in head.headers]
        stream, trailing = self.wire.stream, self._buffer.take_all()
        upgrade = Upgrade(
            path=head.path,
            query=head.query,
            headers=head.headers,
            client=self.client,
            server=self.server,
            scheme=self.scheme,
            head=b"".join(lines) + b"\r\n",
            trailing=trailing,
            stream=stream,
            socket=stream.socket if isinstance(stream, trio.SocketStream) else None,
            account=self._account,
            _wire=self.wire,
            _date=self._port.date(),
        )
        try:
            held = self._account.hold(len(trailing))
        except OperationError as error:
            await self._refuse(PortRefusal.of(error), head)
            return
        with held:
            await handler(upgrade)


def _named(head: Head) -> tuple[str, str]:
    return head.method, head.path


def _addresses(
    stream: trio.abc.Stream,
) -> tuple[tuple[str, int] | None, tuple[str, int] | None]:
    """Give host and port of both ends; None for what has none."""
    raw = raw_socket(stream)
    if raw is None:
        return None, None
    try:
        return _address(raw.getpeername()), _address(raw.getsockname())
    except OSError:  # it is gone already
        return None, None


def _address(name: Any) -> tuple[str, int] | None:  # noqa: ANN401 - of the socket's family
    return (name[0], name[1]) if isinstance(name, tuple) else None
