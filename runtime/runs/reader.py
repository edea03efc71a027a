"""Reading runs, and what they have put out, asked and logged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import perdure.runtime.runs.errors  # noqa: F401 - declares the codes that are raised here
from perdure.actors.run.core import Run, evolve
from perdure.actors.run.events import RUN_EVENTS, ExportAppended, LogBatch, QuestionAsked
from perdure.actors.run.history_rows import HISTORY_NAMES, HistoryRow, history_rows
from perdure.actors.run.kind import RUN_KIND
from perdure.actors.run.stream import stream_of
from perdure.runtime.kernel.actor_reader import ActorReader
from perdure.runtime.runs.export_view import export_view

if TYPE_CHECKING:
    from collections.abc import Container

    from perdure.actors.folded import Folded
    from perdure.actors.run.events import RunEvent
    from perdure.actors.run.views import ExportItem
    from perdure.eventlog.record import Mark
    from perdure.runtime.kernel.actor_reader import Living, Readable


LOOK_BACK: Final = 200  # records that are read at once, from the end of a stream


class RunReader(ActorReader[Run]):
    """Reads the runs of one log."""

    def __init__(self, log: Readable, living: Living[Run] | None = None) -> None:
        """Ask the runs that live, if there are any, and fold the others."""
        super().__init__(RUN_KIND, log, living)

    async def items(
        self, folded: Folded[Run], wanted: Container[int], *, most: int | None = None
    ) -> list[ExportItem]:
        """Read some of the items that a run has put out, by number; ``most`` bytes and one more."""
        run_id, version, size = folded.state.created.run_id, 0, 0
        numbers = [number for number in range(1, folded.state.exports + 1) if number in wanted]
        found: list[ExportItem] = []
        if numbers:
            version = numbers[0]  # the n-th item has at least n records before it
        while len(found) < len(numbers):
            page = await self._log.read_stream(stream_of(run_id), after=version, at=folded.mark)
            for stored in page.records:
                version = stored.version
                if stored.name == ExportAppended.event_name:
                    item: ExportAppended = RUN_EVENTS.decode(stored)
                    if item.number in wanted:
                        found.append(export_view(run_id, item))
                        size += stored.size
                        if most is not None and size >= most:
                            return found
        return found

    async def questions(self, folded: Folded[Run], count: int, *, most: int) -> list[QuestionAsked]:
        """Read what a run asks and nobody has answered; ``most`` bytes and one more."""
        asking, stream = folded.state.asking, stream_of(folded.state.created.run_id)
        found, size, version = list[QuestionAsked](), 0, 0
        count = min(count, len(asking))
        while len(found) < count and size < most and version < folded.version:
            page = await self._log.read_stream(stream, after=version, at=folded.mark)
            for stored in page.records:
                version = stored.version
                if stored.name != QuestionAsked.event_name:
                    continue
                asked: QuestionAsked = RUN_EVENTS.decode(stored)
                if asked.question_id in asking:
                    found.append(asked)
                    size += stored.size
                    if len(found) == count or size >= most:
                        break
        return found

    async def history(
        self, folded: Folded[Run], before: Folded[Run] | None, count: int, *, most: int
    ) -> tuple[list[HistoryRow], Mark | None]:
        """Read what happened in a run since it was so; ``most`` bytes of records and one more.

        The place that comes with it leads on; it is None at the end.
        """
        run, version = (None, 0) if before is None else (before.state, before.version)
        stream, rows, size = stream_of(folded.state.created.run_id), list[HistoryRow](), 0
        while version < folded.version:
            page = await self._log.read_stream(stream, after=version, at=folded.mark)
            for stored in page.records:
                version = stored.version
                if run is not None and stored.name not in HISTORY_NAMES:
                    continue
                event: RunEvent = RUN_EVENTS.decode(stored)
                if run is not None:
                    rows += history_rows(run, event)
                    size += stored.size
                run = evolve(run, event)  # as far as later rows depend on it
                if len(rows) >= count or size >= most:
                    return rows, stored.mark if version < folded.version else None
        return rows, None

    async def log_batches(
        self, folded: Folded[Run], after: Mark | None, lines: int
    ) -> tuple[list[LogBatch], Mark | None]:
        """Read what a run has logged after a place, some lines and the rest of their batch.

        The place that comes with them leads on; it is None at the end.
        """
        stream, found, count = stream_of(folded.state.created.run_id), list[LogBatch](), 0
        version = 0
        if after is not None:
            version = await self._log.in_thread(self._log.store.version_at, stream, after.position)
        while version < folded.version:
            page = await self._log.read_stream(stream, after=version, at=folded.mark)
            for stored in page.records:
                version = stored.version
                if stored.name != LogBatch.event_name:
                    continue
                batch: LogBatch = RUN_EVENTS.decode(stored)
                found.append(batch)
                count += len(batch.lines)
                if count >= lines:
                    return found, stored.mark if version < folded.version else None
        return found, None

    async def last_log_batches(self, folded: Folded[Run], lines: int) -> list[LogBatch]:
        """Read what a run has logged last: at least so many lines, if there are."""
        stream, found, version = stream_of(folded.state.created.run_id), list[LogBatch](), 0
        end = folded.version
        while end > 0 and sum(len(batch.lines) for batch in found) < lines:
            begin = version = max(0, end - LOOK_BACK)
            batches = []
            while version < end:
                page = await self._log.read_stream(stream, after=version, at=folded.mark)
                version = page.records[-1].version
                batches += [
                    RUN_EVENTS.decode(stored)
                    for stored in page.records
                    if stored.name == LogBatch.event_name and stored.version <= end
                ]
            found, end = batches + found, begin
        return found
