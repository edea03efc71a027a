"""What a writing program says: what it asks of the log, and what was answered.

    ASK [["run/1", 3, "run/1", false, ["0192..."]]]    it is about to append this
    ACK 0192... 0192...                                the append with these events is on disk

Each line is written in one piece, so that a program that dies leaves no half of one behind.
"""

from __future__ import annotations

import json
import os
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from perdure.eventlog import Append, StreamWrite
from tests.crash import workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ASK: Final = "ASK"


class Answer(StrEnum):
    """What the log answered to an append."""

    ACK = "ACK"  # on disk
    UNKNOWN = "UNKNOWN"  # on disk or not: OutcomeUnknown
    CLOSED = "CLOSED"  # not written: LogClosed
    FULL = "FULL"  # not written: DiskFull
    GIVEN_UP = "GIVEN-UP"  # not written: cancelled while it waited
    CONFLICT = "CONFLICT"  # not written: the log had moved on


NOT_WRITTEN: Final = (Answer.CLOSED, Answer.FULL, Answer.GIVEN_UP, Answer.CONFLICT)


class Answered(NamedTuple):
    """An append, by the ids of its events, and its answer."""

    answer: Answer
    event_ids: Sequence[bytes]


def say(fd: int, answer: Answer, event_ids: Iterable[bytes]) -> None:
    """Tell of an answer."""
    os.write(fd, " ".join([answer, *(i.hex() for i in event_ids)]).encode() + b"\n")


def ask(fd: int, append: Append) -> None:
    """Tell of an append that is about to be made."""
    writes = [
        (w.stream, w.expected, w.scope, w.seal, [e.event_id.hex() for e in w.events])
        for w in append.writes
    ]
    os.write(fd, f"{ASK} {json.dumps(writes)}\n".encode())


def heard(lines: Iterable[bytes]) -> list[Answered]:
    """Read answers. Other lines, and one that was cut off, are passed over."""
    return [answered for line in lines if (answered := _answered(line)) is not None]


@lru_cache(maxsize=1 << 14)  # a power-cut test hears the same lines a thousand times
def _answered(line: bytes) -> Answered | None:
    word, *ids = line.decode().split() or [""]
    if not line.endswith(b"\n") or word not in set(Answer):
        return None
    return Answered(Answer(word), [bytes.fromhex(i) for i in ids])


def with_answer(answers: Iterable[Answered], *wanted: Answer) -> set[bytes]:
    """The ids of all events whose appends were answered so."""
    return {i for answer, ids in answers if answer in wanted for i in ids}


def unsettled(lines: Sequence[bytes]) -> list[Append]:
    """The appends that were asked for and neither acknowledged nor refused: repeat them."""
    settled = with_answer(heard(lines), Answer.ACK, *NOT_WRITTEN)
    asked: dict[bytes, Append] = {}
    for line in lines:
        if line.startswith(ASK.encode()) and line.endswith(b"\n"):
            append = _append(json.loads(line.removeprefix(ASK.encode())))
            asked[append.writes[0].events[0].event_id] = append
    return [append for event_id, append in asked.items() if event_id not in settled]


def _append(writes: Sequence[tuple[str, int, str, bool, Sequence[str]]]) -> Append:
    ids = [bytes.fromhex(i) for *_, ids in writes for i in ids]
    made = iter(workload.events(ids, seals=any(seal for *_, seal, _ in writes)))
    return Append(
        [
            StreamWrite(stream, expected, [next(made) for _ in own], scope=scope, seal=seal)
            for stream, expected, scope, seal, own in writes
        ]
    )
