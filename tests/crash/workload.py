"""The events of the crash tests: each can be checked by itself, years later, from its bytes alone.

An event's filler follows from its id, so a changed byte shows. Each names the append that it came
with and how many events that had, so half an append shows.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from perdure.eventlog import NewEvent, Record, cbor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

WRITTEN: Final = "crash.written"
SEALED: Final = "crash.sealed"
_SIZES: Final = (0, 10, 100, 300, 700, 1500, 4000)


def events(event_ids: Sequence[bytes], *, seals: bool = False) -> list[NewEvent]:
    """Make the events of one append. With ``seals`` the first of them ends its stream."""
    return [
        NewEvent(
            name=SEALED if seals and i == 0 else WRITTEN,
            body=_body(event_id, event_ids[0], len(event_ids)),
            event_id=event_id,
            event_time=i,
        )
        for i, event_id in enumerate(event_ids)
    ]


def damage(records: Iterable[Record]) -> Iterator[str]:
    """Say which records are not as they were written, and which appends are there in part."""
    found: Counter[tuple[bytes, int]] = Counter()
    for record in records:
        body = cbor.decode(record.body)
        found[body["append"], body["of"]] += 1
        if record.body != _body(record.event_id, body["append"], body["of"]):
            yield f"record {record.position} has other bytes than were written"
        if bool(record.seal) != (record.name == SEALED):
            yield f"record {record.position} has the wrong seal"
    for (append, of), count in found.items():
        if count != of:
            yield f"of the {of} events of append {append.hex()} {count} are there"


@lru_cache(maxsize=1 << 14)  # a power-cut test looks at the same events a thousand times
def _body(event_id: bytes, append: bytes, of: int) -> bytes:
    digest = sha256(event_id).digest()
    size = _SIZES[digest[0] % len(_SIZES)]
    filler = (digest * (size // len(digest) + 1))[:size]
    return cbor.encode({"append": append, "of": of, "filler": filler})
