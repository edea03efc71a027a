"""Bugs planted on purpose: a harness that does not find them proves nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from perdure.eventlog.ledger import Admitted
from perdure.eventlog.sqlite import connection
from perdure.eventlog.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable


def ack_before_commit() -> None:
    """Answer callers when their records are numbered, and write them afterwards."""

    async def write_one_batch(writer: Writer) -> None:
        batch = writer._take()
        verdicts = [writer._ledger.admit(w.append, writer._env.now()) for w in batch]
        records = [r for v in verdicts if isinstance(v, Admitted) for r in v.records]
        await writer._settle(batch, verdicts)
        await trio.lowlevel.checkpoint()
        if records:
            await writer._env.run_sync(writer._store.commit, records, limiter=writer._thread)
        writer._ledger.keep()

    Writer._write_one_batch = write_one_batch  # type: ignore[method-assign,assignment]


def synchronous_normal() -> None:
    """Let SQLite sync at checkpoints only."""
    settings = [
        (name, 1 if name == "synchronous" else wanted) for name, wanted in connection._SETTINGS
    ]
    connection._SETTINGS = tuple(settings)  # type: ignore[misc,assignment]


ALL: Final[dict[str, Callable[[], None]]] = {
    "ack-before-commit": ack_before_commit,
    "synchronous-normal": synchronous_normal,
}
