"""All WebSocket connections of a server, each behind a guard of its own.

The library below lets some errors out of its tasks: a peer that answers our Close with a Ping,
which is legal, is enough. Here they end the connection they happen on, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio
import wsproto.utilities
from trio_websocket import ConnectionClosed, HandshakeError, wrap_server_stream

from perdure.runtime.kernel.channels.groups import Groups
from perdure.runtime.kernel.socket_protocol import JSON
from perdure.runtime.websocket.conversation import ConversationLimits
from perdure.runtime.websocket.formats import FORMATS
from perdure.runtime.websocket.frames import BadPeer, close_frame
from perdure.runtime.websocket.session import Session
from perdure.runtime.websocket.wire import FrameWire, WireLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trio_websocket import WebSocketConnection

    from perdure.runtime.kernel.budget import Account, Budget
    from perdure.runtime.kernel.node import Node
    from perdure.runtime.kernel.principal import Principal
    from perdure.runtime.websocket.formats import Format

    Refusal = tuple[str, str, *tuple[tuple[bytes, bytes], ...]]  # code, message, headers

PATH: Final = "/ws"
VERSION: Final = b"13"  # of WebSocket, as RFC 6455 has it
UPGRADE_TO: Final = (  # what clients are told that come with something else
    (b"upgrade", b"websocket"),
    (b"connection", b"upgrade"),
    (b"sec-websocket-version", VERSION),
)
WITHOUT_SUBPROTOCOL: Final = JSON  # what a client gets that asks for none
_NOT_SPOKEN: Final = ("VALIDATION_ERROR", f"the subprotocols here are {' and '.join(FORMATS)}")
_EXPECTED: Final = (
    BadPeer,
    ConnectionClosed,
    HandshakeError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio.TooSlowError,
    wsproto.utilities.ProtocolError,
)
_BROKEN_FRAMES: Final = frozenset({1002, 1007})


class UpgradeRequest(Protocol):
    """A request to go on as a WebSocket, as the port below hands it over."""

    @property
    def path(self) -> str:
        """The path, without the query."""

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """The headers, their names in small letters."""

    @property
    def head(self) -> bytes:
        """The request as it came."""

    @property
    def trailing(self) -> bytes:
        """What came behind it already."""

    @property
    def stream(self) -> trio.abc.Stream:
        """The connection."""

    @property
    def socket(self) -> trio.socket.SocketType | None:
        """The bare socket below it; None if bytes cannot be written to it as they are."""

    @property
    def account(self) -> Account:
        """What is held in memory for the connection."""

    async def refuse(self, code: str, message: str, *headers: tuple[bytes, bytes]) -> None:
        """Answer with an error of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketLimits:
    """What a connection may take."""

    handshake: float = 10.0  # seconds
    connections: int = 5000
    wire: WireLimits = field(default_factory=WireLimits)
    conversation: ConversationLimits = field(default_factory=ConversationLimits)


def socket_facts(limits: SocketLimits, budget: Budget) -> dict[str, Any]:
    """Give what clients want to know of connections, for the capabilities."""
    frames, conversation = limits.wire.frames, limits.conversation
    return {
        "formats": list(FORMATS),
        "websocket": {
            "message_bytes": frames.message_bytes,
            "fragments": frames.fragments,
            "frames_a_second": frames.rate,
            "calls": conversation.calls,
            "call_bytes": budget.share,
            "follows": conversation.follows,
        },
    }


class Sockets:
    """The WebSocket surface of a node."""

    def __init__(
        self,
        node: Node,
        principal_of: Callable[[UpgradeRequest], Principal],
        limits: SocketLimits | None = None,
    ) -> None:
        """Serve what a node can do; ``run`` has to be running."""
        self._env = node.env
        self._operations = node.operations
        self._making = node.making
        self._principal_of = principal_of
        self.limits = limits or SocketLimits()
        self._groups = Groups(node.log, node.channels.limits)
        self._sessions: set[Session] = set()
        self._draining = False
        self.run = self._groups.run

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._sessions)

    @property
    def follows(self) -> int:
        """How many follows are open."""
        return sum(session.follows for session in self._sessions)

    def drain(self) -> None:
        """Tell all followers where they are, and part with every client."""
        self._draining = True
        for session in self._sessions:
            session.drain()

    async def accept(self, upgrade: UpgradeRequest) -> None:
        """Serve a connection until it ends; whatever happens on it ends here."""
        chosen = _chosen(upgrade)
        refusal = self._refusal(upgrade)
        if chosen is None or refusal is not None:
            await upgrade.refuse(*(refusal or _NOT_SPOKEN))
            return
        wire = FrameWire(
            self._env,
            upgrade.stream,
            upgrade.head,
            upgrade.account,
            trailing=upgrade.trailing,
            socket=upgrade.socket,
            limits=self.limits.wire,
        )
        try:
            await self._serve(upgrade, wire, *chosen)
        except* BadPeer as group:
            await wire.say_last(_first(group).close)
        except* _EXPECTED:
            pass
        finally:
            await trio.aclose_forcefully(wire)

    def _refusal(self, upgrade: UpgradeRequest) -> Refusal | None:
        """Say why there is nothing to upgrade to, if so."""
        if upgrade.path != PATH:
            return "NOT_FOUND", f"WebSockets are at {PATH}"
        if self._draining:
            return "UNAVAILABLE", "this server goes down; come again soon"
        if len(self._sessions) >= self.limits.connections:
            return "TOO_MANY_CONNECTIONS", "too many connections are open; come again soon"
        named = dict(upgrade.headers)
        if b"sec-websocket-key" not in named:
            return "BAD_REQUEST", "send a handshake with a Sec-WebSocket-Key"
        if named.get(b"sec-websocket-version") != VERSION:
            message = f"connect with version {VERSION.decode()} of WebSocket"
            return "UPGRADE_REQUIRED", message, *UPGRADE_TO
        return None

    async def _serve(
        self, upgrade: UpgradeRequest, wire: FrameWire, subprotocol: str | None, format_: Format
    ) -> None:
        limits = self.limits
        async with trio.open_nursery() as nursery:  # the library's reader is in it
            with trio.fail_after(limits.handshake):
                request = await wrap_server_stream(
                    nursery,
                    wire,
                    message_queue_size=8,  # a moment's; our reader always reads
                    max_message_size=limits.wire.frames.message_bytes,
                    receive_buffer_size=64 << 10,
                )
                connection = await request.accept(subprotocol=subprotocol)
            wire.farewell = partial(_reason_to_close, connection)
            session = Session(
                self._operations,
                self._groups,
                self._making,
                self._principal_of(upgrade),
                connection,
                wire,
                format_,
                limits.conversation,
            )
            self._sessions.add(session)
            if self._draining:  # since it was let in
                session.drain()
            try:
                await session.run()
            finally:
                self._sessions.discard(session)
            nursery.cancel_scope.cancel()


def _chosen(upgrade: UpgradeRequest) -> tuple[str | None, Format] | None:
    """Give the subprotocol that both sides know, and its format."""
    offered = [
        name.strip().decode("latin-1")
        for key, value in upgrade.headers
        if key == b"sec-websocket-protocol"
        for name in value.split(b",")
    ]
    if not offered:
        return None, FORMATS[WITHOUT_SUBPROTOCOL]
    return next(((name, FORMATS[name]) for name in offered if name in FORMATS), None)


def _first(group: BaseExceptionGroup[BadPeer]) -> BadPeer:
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found


def _reason_to_close(connection: WebSocketConnection) -> bytes | None:
    """Give the Close that tells a peer what was wrong with its frames."""
    reason = connection.closed
    if reason is None or reason.code not in _BROKEN_FRAMES:
        return None
    return close_frame(reason.code, reason.reason or "")
