"""Records as operators see them.

As CBOR a record is put together from what is stored: body and metadata are CBOR already and are
passed on as they are, so replaying a log decodes nothing and encodes next to nothing.
"""

from __future__ import annotations

from binascii import hexlify
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypedDict

import cbor2

from perdure.eventlog import cbor
from perdure.eventlog.record import EVENT_ID_BYTES
from perdure.runtime.kernel.channels.event import ChannelEvent

if TYPE_CHECKING:
    from perdure.eventlog.record import Mark, Record


class LogRecord(TypedDict):
    """A record of the log as it was stored, for operators."""

    position: int
    version: int
    schema: int
    event_time: int
    commit_time: int
    stream: str
    scope: str
    name: str
    event_id: str
    sealed: bool
    metadata: dict[str, Any]
    body: Any


def log_record(record: Record) -> LogRecord:
    """Give a record as operators see it."""
    return {
        "position": record.position,
        "version": record.version,
        "schema": record.schema,
        "event_time": record.event_time,
        "commit_time": record.commit_time,
        "stream": record.stream,
        "scope": record.scope,
        "name": record.name,
        "event_id": record.event_id.hex(),
        "sealed": bool(record.seal),
        "metadata": cbor.decode(record.meta),
        "body": cbor.decode(record.body),
    }


class RecordEvent(ChannelEvent):
    """A record itself; what it says is looked at only if somebody has to.

    A log is replayed by the hundred thousand, so one costs little more than its name.
    """

    __slots__ = ("_record",)

    kind: str = "record"
    subject: str | None = None
    is_report: bool = False
    is_listed: bool = False

    def __init__(self, record: Record) -> None:
        """Show a record."""
        self._record = record
        self._json = self._cbor = None

    @property
    def mark(self) -> Mark:
        """The place of the record."""
        return self._record.mark

    def as_event(self) -> LogRecord:
        """Give the record, decoded."""
        return log_record(self._record)

    @property
    def cbor(self) -> bytes:
        """The record as CBOR."""
        if self._cbor is None:
            self._cbor = spliced(self._record)
        return self._cbor


def spliced(record: Record) -> bytes:
    """Give what CBOR makes of ``log_record(record)``, from the bytes that are stored."""
    position, stream, version, name, body, scope, event_id, event, commit, schema, seal, meta, _ = (
        record
    )
    stream_text = _stream(stream)
    return b"".join(
        (
            _numbers(
                _POSITION,
                position,
                _VERSION,
                version,
                _SCHEMA,
                schema,
                _EVENT_TIME,
                event,
                _COMMIT_TIME,
                commit,
                _STREAM,
            ),
            stream_text,
            _SCOPE,
            stream_text if scope == stream else _stream(scope),
            _name(name),
            hexlify(event_id),
            _SEALED if seal else _NOT_SEALED,
            meta,
            _BODY,
            body,
        )
    )


def _text(text: str) -> bytes:
    data = text.encode()
    size = len(data)
    if size < _ONE_BYTE:
        return bytes((_TEXT + size,)) + data
    if size < _TWO_BYTES:
        return bytes((_TEXT_8, size)) + data
    return cbor2.dumps(text)


@lru_cache(maxsize=1024)  # those that are busy at the same time
def _stream(stream: str) -> bytes:
    return _text(stream)


@lru_cache(maxsize=256)
def _name(name: str) -> bytes:
    """Give what stands between the scope and the digits of the event id."""
    return _NAME + _text(name) + _EVENT_ID


_ONE_BYTE: Final = 24  # shorter texts have their length in the first byte
_TWO_BYTES: Final = 256
_TEXT: Final = 0x60
_TEXT_8: Final = 0x78
_LONG: Final = b"\x1b"  # begins an integer of eight bytes
_POSITION: Final = b"\xac" + _text("position") + _LONG  # a map of twelve begins here
_VERSION: Final = _text("version") + _LONG
_SCHEMA: Final = _text("schema") + _LONG
_EVENT_TIME: Final = _text("event_time") + _LONG
_COMMIT_TIME: Final = _text("commit_time") + _LONG
_STREAM: Final = _text("stream")
_numbers: Final = Struct(
    ">"
    + "".join(f"{len(key)}sQ" for key in (_POSITION, _VERSION, _SCHEMA, _EVENT_TIME, _COMMIT_TIME))
    + f"{len(_STREAM)}s"
).pack
_SCOPE: Final = _text("scope")
_NAME: Final = _text("name")
_EVENT_ID: Final = _text("event_id") + bytes((_TEXT_8, 2 * EVENT_ID_BYTES))
_SEALED: Final = _text("sealed") + b"\xf5" + _text("metadata")
_NOT_SEALED: Final = _text("sealed") + b"\xf4" + _text("metadata")
_BODY: Final = _text("body")
