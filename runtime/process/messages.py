"""What a process and its server say to each other: one JSON object a line, in both directions.

A process reads from descriptor 3 and writes to 4, which PERDURE_READ_FD and PERDURE_WRITE_FD say
too. Its standard output and error are log lines of its run. docs/plugin-protocol.md tells it to
authors. What an entry says of its run is in ``perdure.runtime.plugins.run_messages``, as it is for
all places; this module has the rest of the wire.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from perdure.runtime.plugins.run_messages import FromEntry, RunMessage

MAX_LINE: Final = 1 << 20  # bytes of a message
PIECE: Final = 192 << 10  # bytes that one message carries at most, decoded
VERSION: Final = 2  # goes up when there is more to say; what was said before means the same


class Malformed(Exception):
    """A process said something that is no message."""


class Error(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Why something failed."""

    code: str = "PLUGIN_ERROR"
    message: str = ""
    details: dict[str, Any] | None = None
    retriable: bool = False


class Begun(RunMessage, tag="begun"):
    """The entry is about to be called: from now on the run is never given to another process."""


class Piece(RunMessage, tag="piece"):
    """The next bytes of an output, said when it is called for; an empty one is the end.

    With an error the output is given up.
    """

    id: int
    data: Annotated[bytes, msgspec.Meta(max_length=PIECE)] = b""  # base64
    error: Error | None = None


class Did(RunMessage, tag="did"):
    """What came of a call of a step; with ``cancelled`` it obeys a request to end.

    An error that is ``last`` is not followed by another try.
    """

    id: int
    value: Any = None
    error: Error | None = None
    cancelled: bool = False
    last: bool = False


class Return(RunMessage, tag="return"):
    """The entry is done. A process that can execute another run stays, others exit."""

    value: Any = None


class Raise(RunMessage, tag="raise"):
    """The entry failed, or (``cancelled``) obeys a request to end."""

    error: Error = msgspec.field(default_factory=Error)
    cancelled: bool = False


Called = Did | Piece  # what is said when it was called for
FromProcess = Begun | FromEntry | Called | Return | Raise


def to_line(message: Any) -> bytes:  # noqa: ANN401 - a message, or its parts
    """Write a message as a line."""
    return msgspec.json.encode(message) + b"\n"
