"""References: which blobs the log names, whatever becomes of the file that knows it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from trio.testing import MockClock

from perdure.actors.run.events import RUN_EVENTS, ExportAppended, StepRecorded
from perdure.eventlog import Append, EventLog, MemoryStore, StreamWrite, open_log
from perdure.runtime.blobs.blob import Blob
from perdure.runtime.blobs.references import Reference, References, catch_up, named_by
from tests.eventlog.conftest import SteadyEnv

EXPORTED, TOLD, OTHER = Blob("0192-a", "a" * 64), Blob("0192-a", "b" * 64), Blob("0192-c", "c" * 64)


def exported(number: int, blob: Blob) -> ExportAppended:
    """An item that has a blob as its content."""
    return ExportAppended(
        number=number,
        type="binary_url",
        fingerprint=str(number),
        occurrence=1,
        at=1,
        binary_url=blob.url,
    )


async def write(log: EventLog, stream: str, version: int, event: Any) -> None:
    """Append an event."""
    new = RUN_EVENTS.encode(event, event_id=log.env.new_id().bytes, event_time=1)
    await log.append(Append([StreamWrite(stream, version, [new])]))


async def fill(log: EventLog) -> None:
    """Name three blobs, one of them only in passing."""
    await write(log, "run/1", 0, StepRecorded(step="s", value={"a": [TOLD.url]}, at=1))
    await write(log, "run/1", 1, exported(1, EXPORTED))
    await write(log, "run/2", 0, StepRecorded(step="s", value="nothing", at=1))
    await write(log, "run/2", 1, exported(1, OTHER))


ALL = [Reference(EXPORTED, True), Reference(TOLD, False), Reference(OTHER, True)]  # noqa: FBT003


async def test_every_event_that_holds_an_address_names_a_blob(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """Items promise that it is there; others only keep it from being collected."""
    async with open_log(env, store) as log:
        await fill(log)
        with closing(References()) as references:
            assert await named_by(log, references, "0192-a") == {EXPORTED, TOLD}
            assert await named_by(log, references, "0192-b") == set()
            assert references.after(None) == ALL
            assert references.after(EXPORTED, limit=1) == ALL[1:2]
            await write(log, "run/1", 2, exported(2, TOLD))
            assert TOLD in await named_by(log, references, "0192-a")
            assert references.after(EXPORTED)[0].promised


async def test_references_go_on_where_they_were_and_are_rebuilt_if_they_do_not_fit(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore, tmp_path: Path
) -> None:
    """Damaged, foreign or of another log: started anew, with the same outcome."""
    path = tmp_path / "references.db"
    async with open_log(env, store) as log:
        await fill(log)
        for beginning in (None, b"not a database" * 100):
            if beginning is not None:
                path.write_bytes(beginning)
            for _ in range(2):
                with closing(References(path)) as references:
                    await catch_up(log, references)
                    assert references.after(None) == ALL
    other = MemoryStore()
    async with open_log(env, other) as log:
        await write(log, "run/9", 0, exported(1, OTHER))
        with closing(References(path)) as references:
            await catch_up(log, references)
            assert references.after(None) == ALL[2:]
