"""A whole server: a node, its surfaces, and the port they are behind.

    server = Server(settings, features)
    await nursery.start(server.run)
    ...
    server.stop()  # in good order; cancelling it ends it as a crash would

If it is stopped before its node is open, ``run`` raises ``StoppedOpening``.

The port is open first. Until the node has taken up what an earlier process left, only ``/healthz``
and ``/readyz`` are answered and everything else waits: a browser that comes back to follow would
take any refusal as final.

It ends in three steps. Nothing new is taken, and runs get some time to end. What has not ended is
let go of, for the next start. Then followers are told, and the connections end.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from perdure.eventlog.env import RealEnv
from perdure.eventlog.units import NANOSECONDS
from perdure.runtime.http import health
from perdure.runtime.http.app import create_app
from perdure.runtime.http.event_routes import event_routes
from perdure.runtime.kernel.announcement import Announcement, announce, withdraw
from perdure.runtime.kernel.budget import Budget
from perdure.runtime.kernel.data_directory import DataDir
from perdure.runtime.kernel.figures import Figure, figure, figures_by
from perdure.runtime.kernel.local_node import open_local_node
from perdure.runtime.kernel.node import LETTING_GO, Node
from perdure.runtime.kernel.opening import StartUp
from perdure.runtime.kernel.principal import principal_of
from perdure.runtime.kernel.routes.reply import json_reply
from perdure.runtime.port import Gate, Port, PortLimits, open_listeners, tls_context
from perdure.runtime.port.host_guard import LOCAL_HOSTS
from perdure.runtime.server.metrics import Metrics
from perdure.runtime.websocket import Sockets
from perdure.runtime.websocket.asyncapi_route import ASYNCAPI
from perdure.runtime.websocket.sockets import PATH, UPGRADE_TO, socket_facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from perdure.runtime.kernel.features import Features
    from perdure.runtime.kernel.settings import Settings
    from perdure.runtime.port import Upgrade

PARTING: Final = 5.0  # seconds that connections get to end
ANNOUNCE_AGAIN: Final = 1.0  # seconds between two tries
_log = logging.getLogger("perdure.serve")


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What is served, and where."""

    node: Node
    port: Port
    url: str


class Entrance:
    """What answers while a server starts. Whatever needs a node waits until there is one."""

    def __init__(self, start_up: StartUp) -> None:
        """Begin without a node."""
        self._start_up = start_up
        self._app: ASGIApp | None = None
        self._sockets: Sockets | None = None
        self._opened = trio.Event()

    def open(self, app: ASGIApp, sockets: Sockets) -> None:
        """Let requests in."""
        self._app, self._sockets = app, sockets
        self._opened.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        while self._app is None:
            if scope["path"] == health.HEALTHZ.path:
                return await json_reply({"status": "ok"})(scope, receive, send)
            if scope["path"] == health.READYZ.path:
                starting = health.starting(self._start_up)
                return await health.readiness_reply(starting)(scope, receive, send)
            await self._opened.wait()
        return await self._app(scope, receive, send)

    async def upgrade(self, upgrade: Upgrade) -> None:
        """Serve a WebSocket."""
        while self._sockets is None:
            await self._opened.wait()
        await self._sockets.accept(upgrade)


class Server:
    """One process that serves one log."""

    def __init__(self, settings: Settings, features: Features) -> None:
        """Nothing is opened before ``run``."""
        self._settings = settings
        self._features = features
        self.start_up = StartUp()

    def stop(self) -> None:
        """Go down in good order."""
        self.start_up.stopping.set()

    async def run(self, task_status: trio.TaskStatus[Serving] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until told to stop, or cancelled."""
        settings = self._settings.server
        tls = None
        if settings.tls_certificate or settings.tls_key:
            tls = tls_context(Path(settings.tls_certificate), Path(settings.tls_key))
        listeners = await open_listeners(settings.host, settings.port, tls=tls)
        entrance = Entrance(self.start_up)
        port = Port(
            entrance,
            upgrade=entrance.upgrade,
            limits=PortLimits(body_bytes=settings.body_limit),
            gate=gate_of(self._settings),
            budget=Budget(settings.memory_budget),
            env=RealEnv(),
        )
        url = url_of(self._settings, _port_of(listeners))
        connections = trio.CancelScope()

        async def serve(task_status: trio.TaskStatus[object] = trio.TASK_STATUS_IGNORED) -> None:
            with connections:
                await port.serve(listeners, task_status=task_status)

        async with trio.open_nursery() as nursery:
            await nursery.start(serve)
            async with (
                open_local_node(self._settings, self._features, start_up=self.start_up) as node,
                trio.open_nursery() as surfaces,
            ):
                sockets = Sockets(node, principal_of)
                surfaces.start_soon(sockets.run)
                entrance.open(_app(node, self._settings, port, sockets), sockets)
                announcement = Announcement(
                    pid=os.getpid(), url=url, certificate=_absolute(settings.tls_certificate)
                )
                await surfaces.start(_announced, DataDir.of(self._settings), announcement)
                task_status.started(Serving(node=node, port=port, url=url))
                await self.start_up.stopping.wait()
                await self._go_down(node, port, sockets)
                connections.cancel()
                surfaces.cancel_scope.cancel()

    async def _go_down(self, node: Node, port: Port, sockets: Sockets) -> None:
        grace = self._settings.server.drain_grace
        told = "shutting down: no new work; waiting up to %g s for %s to end"
        _log.info(told, grace, _counted(node.busy))
        node.close()
        with trio.move_on_after(grace):
            await node.at_rest(node.env.now() + round(grace * NANOSECONDS))
        left = node.busy
        node.drain()
        with trio.move_on_after(LETTING_GO):
            await node.settled()
        if left or node.waiting:
            _log.info("%s will resume at the next start", _counted(left + node.waiting))
        node.leaving.set()
        sockets.drain()
        port.drain()
        with trio.move_on_after(PARTING):
            await port.drained()
        _log.info("stopped")


async def _announced(
    data: DataDir, announcement: Announcement, task_status: trio.TaskStatus[None]
) -> None:
    """Announce the server until cancelled; on a full disk, as soon as there is room."""
    try:
        is_announced = announce(data, announcement)
        task_status.started()
        while not is_announced:
            await trio.sleep(ANNOUNCE_AGAIN)
            is_announced = announce(data, announcement)
        await trio.sleep_forever()
    finally:
        withdraw(data, announcement)


def _counted(runs: int) -> str:
    return f"{runs:,} {'run' if runs == 1 else 'runs'}"


def gate_of(settings: Settings) -> Gate:
    """Say by which names a server may be asked, and from the pages of whom."""
    server = settings.server
    own = [] if _is_wildcard(server.host) else [_bracketed(server.host)]
    return Gate(hosts=[*LOCAL_HOSTS, *own, *server.hosts], origins=server.origins)


def url_of(settings: Settings, port: int) -> str:
    """Give an address at which a server is reached from its own machine."""
    host = settings.server.host
    if _is_wildcard(host):
        host = "::1" if ":" in host else "127.0.0.1"
    scheme = "https" if settings.server.tls_certificate else "http"
    return f"{scheme}://{_bracketed(host)}:{port}"


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_wildcard(host: str) -> bool:
    try:
        return not host or ip_address(host).is_unspecified
    except ValueError:
        return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _absolute(path: str | None) -> str | None:
    return None if not path else str(Path(path).resolve())


def _port_of(listeners: Sequence[trio.abc.Listener[Any]]) -> int:
    first = listeners[0]
    if isinstance(first, trio.SSLListener):
        first = first.transport_listener
    assert isinstance(first, trio.SocketListener)  # noqa: S101 - what open_listeners gives
    return int(first.socket.getsockname()[1])


def _app(node: Node, settings: Settings, port: Port, sockets: Sockets) -> ASGIApp:
    metrics = Metrics(
        node,
        lambda: _port_figures(port),
        lambda: _socket_figures(sockets),
        port.budget.figures,
    )
    return create_app(
        node,
        settings,
        (
            *event_routes(node.features),
            *health.HEALTH,
            health.metrics_route(metrics),
            ASYNCAPI,
        ),
        facts={**port.budget.facts(), **socket_facts(sockets.limits, port.budget)},
        upgrades={PATH: UPGRADE_TO},
    )


def _port_figures(port: Port) -> Iterable[Figure]:
    counters = port.counters
    yield figure("http_connections", "gauge", "Connections that are open.", port.connections)
    for name, about, value in (
        ("http_accepted_connections", "Connections accepted.", counters.accepted),
        ("http_requests", "Requests read.", counters.requests),
        ("http_upgrades", "Requests that went on as WebSockets.", counters.upgrades),
        ("http_crashes", "Requests whose handling broke.", counters.crashes),
        ("http_protocol_errors", "Requests that were no HTTP.", counters.protocol_errors),
        ("http_stalled_connections", "Clients cut off for not reading.", counters.stalled),
        ("http_received_bytes", "Bytes received.", counters.bytes_in),
        ("http_sent_bytes", "Bytes sent.", counters.bytes_out),
    ):
        yield figure(name, "counter", about, value)
    yield figures_by(
        "code", "http_refusals", "counter", "Requests the port itself refused.", counters.refused
    )


def _socket_figures(sockets: Sockets) -> Iterable[Figure]:
    yield figure("websocket_connections", "gauge", "WebSockets that are open.", sockets.connections)
    yield figure("websocket_follows", "gauge", "Follows on WebSockets.", sockets.follows)
