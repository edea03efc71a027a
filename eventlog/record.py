"""Records: what the log stores, as bytes and numbers.

A record is a frozen fact at one place: the ``version``-th of its ``stream`` and at one global
``position``. Its body and its metadata stay the CBOR bytes they were written as until somebody
asks, so that reading a log, counting it or passing it on to a client decodes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from perdure.eventlog import cbor, checksum
from perdure.eventlog.errors import CodecError

EVENT_ID_BYTES = 16

FieldValue = str | int | float | bool | None


class Mark(NamedTuple):
    """A place in the log: a position and the id of the event there (none at the start)."""

    position: int
    event_id: bytes


START = Mark(0, b"")


_FIELD_TYPES = frozenset({str, int, float, bool, type(None)})


def _check_fields(fields: Mapping[str, object]) -> None:
    for name, value in fields.items():
        if type(value) not in _FIELD_TYPES:
            raise CodecError(f"metadata field {name!r} holds a {type(value).__name__}")


class SoundMetadata(bytes):
    """Metadata that ``Metadata.encode`` has made: nobody has to look at it again."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Who caused an event, and the fields that followers of its kind filter by."""

    principal: str | None = None
    trace: str | None = None
    fields: Mapping[str, FieldValue] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Give the stored form; what is not set takes no space."""
        stated = {
            "principal": self.principal,
            "trace": self.trace,
            "fields": dict(self.fields) or None,
        }
        _check_fields(self.fields)
        present = {name: value for name, value in stated.items() if value is not None}
        return SoundMetadata(cbor.encode(present))

    @classmethod
    def decode(cls, stored: bytes) -> "Metadata":
        """Read the stored form. Names written by an earlier or later release are passed over."""
        found = cbor.decode(stored)
        return cls(
            principal=found.get("principal"),
            trace=found.get("trace"),
            fields=found.get("fields", {}),
        )


NO_METADATA = Metadata().encode()


@lru_cache(maxsize=1024)
def encoded_metadata(
    principal: str | None, trace: str | None, fields: tuple[tuple[str, FieldValue], ...]
) -> bytes:
    """Give the stored form of metadata; many events have the same."""
    return Metadata(principal=principal, trace=trace, fields=dict(fields)).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event on its way into the log. Its id was minted before the append."""

    name: str
    body: bytes
    event_id: bytes
    event_time: int  # UTC nanoseconds, from the command
    schema: int = 1
    meta: bytes = NO_METADATA


class Record(NamedTuple):
    """One stored event. A tuple in column order: a log is read by the hundred thousand."""

    position: int
    stream: str
    version: int
    name: str
    body: bytes
    scope: str
    event_id: bytes
    event_time: int
    commit_time: int  # UTC nanoseconds, stamped by the writer, never decreasing
    schema: int
    seal: int  # 1 if nothing may follow in this stream
    meta: bytes
    checksum: bytes | None = None  # of all that is before; None if it was written without one

    @property
    def mark(self) -> Mark:
        """The place of this record."""
        return Mark(self.position, self.event_id)

    @property
    def size(self) -> int:
        """The bytes that this record's contents take."""
        return len(self.body) + len(self.meta)

    @property
    def metadata(self) -> Metadata:
        """The decoded metadata."""
        return Metadata.decode(self.meta)


def with_checksum(record: Record) -> Record:
    """Give a record the checksum of its values."""
    return Record._make(checksum.append_to(record[:-1]))


def check_metadata(stored: bytes) -> None:
    """Raise CodecError unless these bytes are metadata that every follower can filter by."""
    found = cbor.decode_strict(stored)
    if not isinstance(found, dict) or not isinstance(found.get("fields", {}), dict):
        raise CodecError("metadata is a map, and so are its fields")
    _check_fields(found.get("fields", {}))


def foreign_record(position: int, stream: str, version: int, name: str, body: bytes) -> Record:
    """Make a record of an event that came through the recorder interface of ``eventsourcing``."""
    seed = f"{stream}\n{version}".encode()
    return with_checksum(
        Record(
            position=position,
            stream=stream,
            version=version,
            name=name,
            body=body,
            scope=stream,
            event_id=blake2b(seed, digest_size=EVENT_ID_BYTES).digest(),
            event_time=0,
            commit_time=0,
            schema=1,
            seal=0,
            meta=NO_METADATA,
        )
    )
