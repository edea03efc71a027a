"""What every request is made of, and what is checked before an operation is called.

An instant comes as ``kernel.instants`` has it, on every surface: a number is epoch seconds, a text
is ISO 8601 or a cursor. The table of operations reads it (``Operation.parse``), so that requests
hold UTC nanoseconds and cursors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Text = Annotated[str, msgspec.Meta(max_length=4096)]
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
Size = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=500)]
After = Annotated[str, msgspec.Meta(extra_json_schema={"format": "cursor"})]
Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
_TIMES: Final = [{"type": "string", "format": "date-time"}, {"type": "number"}]
_WRITTEN: Final = (
    "an ISO 8601 time (UTC unless it says otherwise), or epoch seconds; a whole number from 10^16"
    " on is epoch nanoseconds"
)

if TYPE_CHECKING:
    Instant = int  # UTC nanoseconds
    CursorOrInstant = str | int  # a cursor, or UTC nanoseconds
else:  # as they come
    Instant = Annotated[
        Any,
        msgspec.Meta(title="instant", description=_WRITTEN, extra_json_schema={"anyOf": _TIMES}),
    ]
    CursorOrInstant = Annotated[
        Any,
        msgspec.Meta(
            title="cursor or instant",
            description=f"a cursor, {_WRITTEN}",
            extra_json_schema={"anyOf": [{"type": "string", "format": "cursor"}, *_TIMES]},
        ),
    ]


class Request(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A request: nothing unknown in it, nothing left to guess."""


class TolerantRequest(msgspec.Struct, kw_only=True):
    """A request of a dialect in which unknown fields are ignored."""


AnyRequest = Request | TolerantRequest
