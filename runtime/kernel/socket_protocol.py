"""What both ends of a WebSocket agree on; ``docs/websocket.md`` describes the messages."""

from typing import Final

CBOR: Final = "perdure.v1+cbor"  # subprotocols, by how messages are encoded
JSON: Final = "perdure.v1+json"
FOLLOW: Final = "log.follow"  # the operation behind every follow
TERMINAL: Final = "terminal"  # why a follow ends that has come to the end of what it follows
MESSAGE_BYTES: Final = 1 << 20  # of a message from a client
