"""The baseline of followers: trio-websocket as it is, and a loop over ``send_message``.

``python -m tools.bench.loop_server DIR`` is such a server, in a process of its own. Whoever sends
it a number is a caller: that many others, those who came first, are sent a message each.
"""

from __future__ import annotations

import json
import sys
from typing import Final

import cbor2
import trio
from trio_websocket import (
    ConnectionClosed,
    WebSocketConnection,
    WebSocketRequest,
    serve_websocket,
)

# As large as what channel runs shows of a change.
_MESSAGE: Final = cbor2.dumps({"id": 1, "events": [{"of": "x" * 150}], "cursor": "x" * 40})


async def _serve() -> None:
    connections: list[WebSocketConnection] = []

    async def handle(request: WebSocketRequest) -> None:
        """Serve a connection."""
        connection = await request.accept(subprotocol=request.proposed_subprotocols[0])
        connections.append(connection)
        try:
            while True:
                message = await connection.get_message()
                assert isinstance(message, bytes)  # noqa: S101 - what a caller sends
                for other in connections[: cbor2.loads(message)]:
                    await other.send_message(_MESSAGE)
                await connection.send_message(cbor2.dumps("done"))
        except ConnectionClosed:
            pass

    async with trio.open_nursery() as nursery:
        server = await nursery.start(serve_websocket, handle, "127.0.0.1", 0, None)
        print(json.dumps({"port": server.port}), flush=True)
        await trio.lowlevel.wait_readable(sys.stdin)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(_serve)
