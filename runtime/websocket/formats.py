"""The two formats of a connection: JSON in text messages, CBOR in binary ones.

An event frame is a short prefix that names the follow, and a batch that is the same for everybody:

    {"id": 7,  "events": [...], "cursor": "..."}
    └ prefix ┘└──────────── batch ────────────┘
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import cbor2

from perdure.eventlog import cbor
from perdure.eventlog.errors import CodecError
from perdure.runtime.kernel import strict_json
from perdure.runtime.kernel.socket_protocol import CBOR, JSON
from perdure.runtime.kernel.strict_json import encode_json
from perdure.runtime.websocket.frames import BINARY, TEXT, framed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.eventlog.cbor import Counted
    from perdure.runtime.kernel.channels.event import ChannelEvent

FollowId = str | int


class EventFrames:
    """The frames of a batch: connections that have the same prefix share one, and most have."""

    __slots__ = ("_batch", "_opcode", "frame", "prefix")

    def __init__(self, opcode: int, batch: bytes) -> None:
        """Nothing is put together before the first prefix is known."""
        self._opcode = opcode
        self._batch = batch
        self.prefix = self.frame = b""

    def begin_with(self, prefix: bytes) -> None:
        """Put a frame together."""
        self.prefix = prefix
        self.frame = framed(self._opcode, prefix + self._batch)


class Format(Protocol):
    """How messages are written on a connection."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def opcode(self) -> int:
        """What kind of frames its messages are."""

    def decode(self, message: str | bytes) -> Counted:
        """Read what a client has sent, or raise CodecError."""

    def encode(self, value: Any) -> bytes:  # noqa: ANN401 - whatever is answered
        """Write a message."""

    def prefix(self, follow_id: FollowId) -> bytes:
        """Begin an event frame."""

    def batch(self, events: Sequence[ChannelEvent], cursor: str | None) -> bytes:
        """Write what comes after the prefix of an event frame."""

    def group_batch(self, events: Sequence[ChannelEvent], cursor: str | None) -> EventFrames:
        """Write the event frames of followers that get the same."""
        return EventFrames(self.opcode, self.batch(events, cursor))


class Json(Format):
    """JSON in text messages."""

    name: Final = "json"
    opcode: Final = TEXT

    def decode(self, message: str | bytes) -> Counted:
        """Read what a client has sent."""
        if not isinstance(message, str):
            raise CodecError(f"messages of {JSON} are text")
        return strict_json.decode_message(message.encode())

    def encode(self, value: Any) -> bytes:  # noqa: ANN401 - whatever is answered
        """Write a message; bytes become base64."""
        return encode_json(value)

    def prefix(self, follow_id: FollowId) -> bytes:
        """Begin an event frame."""
        return b'{"id":%b,' % encode_json(follow_id)

    def batch(self, events: Sequence[ChannelEvent], cursor: str | None) -> bytes:
        """Write what comes after the prefix of an event frame."""
        return b'"events":[%b],"cursor":%b}' % (
            b",".join([one.json for one in events]),
            encode_json(cursor),
        )


class Cbor(Format):
    """CBOR in binary messages."""

    name: Final = "cbor"
    opcode: Final = BINARY

    def decode(self, message: str | bytes) -> Counted:
        """Read what a client has sent."""
        if not isinstance(message, bytes):
            raise CodecError(f"messages of {CBOR} are binary")
        return cbor.decode_message(message)

    def encode(self, value: Any) -> bytes:  # noqa: ANN401 - whatever is answered
        """Write a message."""
        return cbor2.dumps(value)

    def prefix(self, follow_id: FollowId) -> bytes:
        """Begin an event frame: a map of three begins here."""
        return b"\xa3\x62id%b" % cbor2.dumps(follow_id)

    def batch(self, events: Sequence[ChannelEvent], cursor: str | None) -> bytes:
        """Write what comes after the prefix of an event frame."""
        return b"\x66events%b%b\x66cursor%b" % (
            _array_head(len(events)),
            b"".join([one.cbor for one in events]),
            cbor2.dumps(cursor),
        )


def _array_head(count: int) -> bytes:
    if count < 24:  # noqa: PLR2004 - as RFC 8949 has it
        return bytes((0x80 | count,))
    return b"\x99" + count.to_bytes(2, "big")


FORMATS: Final[dict[str, Format]] = {CBOR: Cbor(), JSON: Json()}
