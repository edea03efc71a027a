"""Callers whose answers a test can look at, and a store that fails as told."""

from __future__ import annotations

from collections.abc import Sequence

import trio
import trio.testing

from perdure.eventlog import (
    Append,
    EventLog,
    EventLogError,
    MemoryStore,
    Receipt,
    Record,
    StreamWrite,
)
from perdure.eventlog.testing import example_event


def write(stream: str, expected: int = 0) -> Append:
    """Append one event to one stream."""
    return Append([StreamWrite(stream, expected, [example_event()])])


class Caller:
    """A task that appends and keeps its answer."""

    def __init__(self, log: EventLog, append: Append, *, new_work: bool = False) -> None:
        """Nothing happens before ``run``."""
        self.log = log
        self.append = append
        self.new_work = new_work
        self.answer: Receipt | EventLogError | None = None
        self.answered_at: float | None = None
        self.scope = trio.CancelScope()

    @property
    def answered(self) -> bool:
        """Whether there is an answer."""
        return self.answer is not None

    async def run(self) -> None:
        """Append; keep the answer, and when it came."""
        with self.scope:
            try:
                self.answer = await self.log.append(self.append, new_work=self.new_work)
            except EventLogError as error:
                self.answer = error
            self.answered_at = trio.current_time()


async def start(nursery: trio.Nursery, *callers: Caller) -> None:
    """Start callers in this order."""
    for caller in callers:
        nursery.start_soon(caller.run)
        await trio.testing.wait_all_tasks_blocked()


class FailingStore(MemoryStore):
    """A store whose next commits fail as told."""

    def __init__(self) -> None:
        """Fail in no way."""
        super().__init__()
        self.error: Exception | None = None
        self.written_all_the_same = False
        self.once = False

    def commit(self, records: Sequence[Record]) -> None:
        """Commit or fail."""
        error, self.error = self.error, None if self.once else self.error
        if error is None or self.written_all_the_same:
            super().commit(records)
        if error is not None:
            raise error
