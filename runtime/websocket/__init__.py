"""Perdure over WebSocket: calls and follows on one connection. It knows no rule of a run."""

from perdure.runtime.websocket.sockets import SocketLimits as SocketLimits
from perdure.runtime.websocket.sockets import Sockets as Sockets
