"""What a process and its server say to each other: one JSON object a line, in both directions.

A process reads from descriptor 3 and writes to 4, which PERDURE_READ_FD and PERDURE_WRITE_FD say
too. Its standard output and error are log lines of its run. docs/plugin-protocol.md tells it to
authors; this module is the whole of the wire.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

import msgspec

MAX_LINE: Final = 1 << 20  # bytes of a message
PIECE: Final = 192 << 10  # bytes that one message carries at most, decoded
VERSION: Final = 1  # goes up when there is more to say; what was said before means the same


class Malformed(Exception):
    """A process said something that is no message."""


class Error(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Why something failed."""

    code: str = "PLUGIN_ERROR"
    message: str = ""
    details: dict[str, Any] | None = None
    retriable: bool = False


class RetryRule(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How often a step is tried, and how long it waits between two tries."""

    tries: int = 1
    delay: float = 1.0
    factor: float = 2.0
    longest: float = 300.0


class _FromProcess(
    msgspec.Struct, kw_only=True, tag_field="say", forbid_unknown_fields=True, omit_defaults=True
):
    """Whatever a process says, it says about its own run; naming it is optional."""

    run_id: str | None = None


class Begun(_FromProcess, tag="begun"):
    """The entry is about to be called: from now on the run is never given to another process."""


class Progress(_FromProcess, tag="progress"):
    """How far the work is."""

    progress: float
    message: str | None = None


class Stage(_FromProcess, tag="status"):
    """What the work is doing."""

    stage: str
    message: str | None = None


class Log(_FromProcess, tag="log"):
    """A line for the run's log."""

    text: str
    level: str = "info"


class Export(_FromProcess, tag="export"):
    """An output; answered with the item's id. ``content`` of a binary is base64."""

    id: int
    type: Literal["text", "url", "binary_url", "binary", "json", "id"]
    content: Any
    description: str | None = None
    key: str | None = None
    mime: str | None = None
    metadata: dict[str, Any] | None = None


class Bytes(_FromProcess, tag="bytes"):
    """An output of any size; answered with ``call`` (say the next piece), then the item's id."""

    id: int
    description: str | None = None
    key: str | None = None
    mime: str | None = None
    metadata: dict[str, Any] | None = None


class Piece(_FromProcess, tag="piece"):
    """The next bytes of an output, said when it is called for; an empty one is the end.

    With an error the output is given up.
    """

    id: int
    data: Annotated[bytes, msgspec.Meta(max_length=PIECE)] = b""  # base64
    error: Error | None = None


class Result(_FromProcess, tag="result"):
    """These items are the result."""

    items: list[str]


class Step(_FromProcess, tag="step"):
    """A durable step; answered with ``call`` (do it) as often as needed, then with its value."""

    id: int
    name: str
    retry: RetryRule = msgspec.field(default_factory=RetryRule)


class Did(_FromProcess, tag="did"):
    """What came of a call of a step; with ``cancelled`` it obeys a request to end."""

    id: int
    value: Any = None
    error: Error | None = None
    cancelled: bool = False


class Sleep(_FromProcess, tag="sleep"):
    """Sleep, through restarts; answered when it is over."""

    id: int
    seconds: float
    name: str | None = None


class Ask(_FromProcess, tag="ask"):
    """A question to people or programs outside; answered with their answer."""

    id: int
    question: Any
    name: str | None = None


class Start(_FromProcess, tag="start"):
    """Start another run; answered with its id."""

    id: int
    plugin_id: str
    entry_id: str
    args: dict[str, Any] = {}
    name: str | None = None


class Return(_FromProcess, tag="return"):
    """The entry is done. A process that can execute another run stays, others exit."""

    value: Any = None


class Raise(_FromProcess, tag="raise"):
    """The entry failed, or (``cancelled``) obeys a request to end."""

    error: Error = msgspec.field(default_factory=Error)
    cancelled: bool = False


Request = Export | Bytes | Step | Sleep | Ask | Start
Called = Did | Piece  # what is said when it was called for
FromProcess = Begun | Progress | Stage | Log | Result | Request | Called | Return | Raise

_QUOTED: Final = re.compile(r" '.*'", re.DOTALL)  # in an error: what was said, or a part of it
_decoder: Final[msgspec.json.Decoder[FromProcess]] = msgspec.json.Decoder(FromProcess)


def parse(line: bytes) -> FromProcess:
    """Read what a process said."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"not a message: {_QUOTED.sub('', str(error))}") from None


def to_line(message: Any) -> bytes:  # noqa: ANN401 - a message, or its parts
    """Write a message as a line."""
    return msgspec.json.encode(message) + b"\n"
