"""The port: it accepts connections, up to a number, and lets go of them in good order.

port = Port(app, upgrade=websocket, env=env)
await nursery.start(port.serve, await open_listeners("127.0.0.1", 7373))
"""

from __future__ import annotations

import errno
import logging
import resource
from collections import Counter
from email.utils import formatdate
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any, Final

import trio

from perdure.eventlog.units import NANOSECONDS
from perdure.runtime.kernel.budget import Budget
from perdure.runtime.port.connection import HttpConnection
from perdure.runtime.port.counters import PortCounters
from perdure.runtime.port.host_guard import Gate
from perdure.runtime.port.limits import PortLimits
from perdure.runtime.port.refusal import PortRefusal, error_response
from perdure.runtime.port.wire import ByteWire, Disconnected, raw_socket

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from perdure.eventlog.env import Env
    from perdure.runtime.port.upgrade import Upgrade

    App = Callable[[Any, Any, Any], Awaitable[None]]
    UpgradeHandler = Callable[[Upgrade], Awaitable[None]]
    Listener = trio.abc.Listener[Any]

log: Final = logging.getLogger("perdure.port")

_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE: Final = 0.1  # after the system had no room for another connection
_TURNED_AWAY: Final = 64  # told why at the same time; the others are closed without a word
_RESERVED: Final = 256  # descriptors for files, processes and all that is not a connection
_LOOPBACK: Final = "loopback"
_FULL: Final = PortRefusal(
    "TOO_MANY_CONNECTIONS",
    "too many connections are open; close some, or connect again in a moment",
)


class Port:
    """An ASGI server. Each connection is one task and fails alone."""

    def __init__(
        self,
        app: App,
        *,
        upgrade: UpgradeHandler | None = None,
        limits: PortLimits | None = None,
        gate: Gate | None = None,
        budget: Budget | None = None,
        env: Env,
    ) -> None:
        """Serve ``app``; nothing is opened before ``serve``."""
        self.app = app
        self.upgrade = upgrade
        self.limits = limits or PortLimits()
        self.gate = gate or Gate()
        self.budget = budget or Budget()
        self.counters = PortCounters()
        self.draining = False
        self._env = env
        self._second = -1
        self._date = b""
        self._accepting: list[trio.CancelScope] = []
        self._open: dict[trio.abc.Stream, HttpConnection | None] = {}  # None while hands are shaken
        self._peers: Counter[str] = Counter()
        self._room = _room(self.limits.connections)
        self._turned_away = 0
        self._empty = trio.Event()

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._open)

    def date(self) -> bytes:
        """Give the time as HTTP writes it, made once a second."""
        second = self._env.now() // NANOSECONDS
        if second != self._second:
            self._second = second
            self._date = formatdate(second, usegmt=True).encode()
        return self._date

    async def serve(
        self,
        listeners: Sequence[Listener],
        *,
        task_status: trio.TaskStatus[Sequence[Listener]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until cancelled, or until all connections have ended after ``drain``."""
        async with trio.open_nursery() as nursery:
            for listener in listeners:
                nursery.start_soon(self._accept, listener, nursery)
            task_status.started(listeners)

    def drain(self) -> None:
        """Accept nothing more, close what is idle, and let each response be the last of its kind.

        Upgraded connections are their handlers' business.
        """
        self.draining = True
        for scope in self._accepting:
            scope.cancel()
        for connection in self._open.values():
            if connection is not None:
                connection.drain()

    async def drained(self) -> None:
        """Wait until no connection is left."""
        while self._open:
            self._empty = trio.Event()
            await self._empty.wait()

    # --- connections -------------------------------------------------------------------------

    async def _accept(self, listener: Listener, nursery: trio.Nursery) -> None:
        async with listener:
            with trio.CancelScope() as scope:
                self._accepting.append(scope)
                if self.draining:
                    return
                while True:
                    try:
                        stream = await listener.accept()
                    except OSError as error:
                        if error.errno not in _NO_ROOM:
                            raise
                        log.warning("no room for another connection: %s", error.strerror)
                        await trio.sleep(_PAUSE)
                    else:
                        self._admit(stream, nursery)

    def _admit(self, stream: trio.abc.Stream, nursery: trio.Nursery) -> None:
        """Start the task of a connection, if there is room for it."""
        peer = self._peer(stream)
        limits = self.limits
        most = limits.connections_per_peer
        full = len(self._open) >= self._room
        if full or (most is not None and peer is not None and self._peers[peer] >= most):
            self.counters.refused[_FULL.code] += 1
            nursery.start_soon(self._turn_away, stream)
            return
        self.counters.accepted += 1
        self._open[stream] = None
        if peer is not None:
            self._peers[peer] += 1
        nursery.start_soon(self._run, stream, peer)

    async def _run(self, stream: trio.abc.Stream, peer: str | None) -> None:
        try:
            if isinstance(stream, trio.SSLStream) and not await self._shaken_hands(stream):
                return
            with self.budget.account() as account:
                self._open[stream] = connection = HttpConnection(self, stream, account)
                await connection.run()
        finally:
            del self._open[stream]
            if peer is not None:
                self._forget(peer)
            if not self._open:
                self._empty.set()
            await trio.aclose_forcefully(stream)

    async def _shaken_hands(self, stream: trio.SSLStream[Any]) -> bool:
        with trio.move_on_after(self.limits.handshake):
            try:
                await stream.do_handshake()
            except trio.BrokenResourceError as error:
                log.debug("no TLS: %s", error.__cause__ or error)
                self.counters.protocol_errors += 1
                return False
            return True
        return False

    async def _turn_away(self, stream: trio.abc.Stream) -> None:
        """Say why there is no room, to a few at a time and never after a handshake."""
        try:
            if self._turned_away < _TURNED_AWAY and not isinstance(stream, trio.SSLStream):
                self._turned_away += 1
                try:
                    await self._say_full(ByteWire(stream, self.limits, self.counters))
                finally:
                    self._turned_away -= 1
        finally:
            await trio.aclose_forcefully(stream)

    async def _say_full(self, wire: ByteWire) -> None:
        try:
            await wire.write_last(error_response(_FULL, date=self.date()))
            await wire.linger()
        except Disconnected:
            return

    # --- peers -------------------------------------------------------------------------------

    def _peer(self, stream: trio.abc.Stream) -> str | None:
        """Give what connections are counted by; None for those that are not."""
        raw = raw_socket(stream)
        try:
            name = None if raw is None else raw.getpeername()
        except OSError:
            return None
        if not isinstance(name, tuple):
            return None
        peer = peer_of(name[0])
        return None if peer == _LOOPBACK and not self.limits.count_loopback else peer

    def _forget(self, peer: str) -> None:
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer]


def _room(wanted: int) -> int:
    """Give for how many connections this process has descriptors, with some left for the rest.

    Without any left, connections would wait unanswered, and the log could not open its files.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, max(soft - _RESERVED, soft // 2))


def peer_of(host: str) -> str:
    """Give what an address counts as: who has one of IPv6 has its whole network of 64 bits."""
    address = ip_address(host.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback:
        return _LOOPBACK
    if isinstance(address, IPv6Address):
        return f"{IPv6Address(int(address) >> 64 << 64)}/64"
    return str(address)
