"""Reading runs: as they are and as they were, by whoever may see them.

A run of another tenant is one that does not exist. Where actors live they are asked; what does not
live is folded. Nothing here needs an event loop: beside a server, or after it, the same code reads
a log that answers at once.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, TypeVar

import perdure.runtime.runs.errors  # noqa: F401 - declares the codes that are raised here
from perdure.actors.errors import Crashed, NoSuchActor
from perdure.actors.folding import Streams, fold_stream
from perdure.actors.run.core import RUN, Run
from perdure.actors.run.events import RUN_EVENTS, ExportAppended, LogBatch, QuestionAsked
from perdure.actors.run.stream import stream_of
from perdure.actors.run.views import ExportItem, export_item
from perdure.eventlog.errors import UnreadableRecord
from perdure.runtime.kernel.errors import OperationError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable
    from typing import TypeVarTuple, Unpack

    from perdure.actors.folded import Folded
    from perdure.actors.run.events import RunCreated
    from perdure.eventlog.record import Mark
    from perdure.eventlog.store import Store
    from perdure.runtime.kernel.principal import Principal

    Arguments = TypeVarTuple("Arguments")

Result = TypeVar("Result")

_log = logging.getLogger("perdure.runs")


class Readable(Streams, Protocol):
    """What reading needs of the log."""

    @property
    def store(self) -> Store:
        """What it is stored in."""

    def cursor(self, mark: Mark) -> str:
        """Give the cursor for a place."""

    async def head(self) -> Mark:
        """Give the place of the newest record."""

    async def resolve(self, cursor: str) -> Mark:
        """Find the place that a cursor names."""

    async def mark_before(self, instant: int) -> Mark:
        """Find the last record committed at or before an instant."""

    async def in_thread(
        self,
        fn: Callable[[Unpack[Arguments]], Result],
        *args: *Arguments,
    ) -> Result:
        """Call a blocking function of the store."""


class Living(Protocol):
    """The actors of runs, some of which live."""

    def peek(self, stream: str) -> Folded[Run] | None:
        """Give what a live actor knows."""

    async def look_briefly(self, stream: str) -> Folded[Run] | None:
        """Give the state of an actor after what it is writing, unless that takes long."""


class RunReader:
    """Reads the runs of one log."""

    def __init__(self, log: Readable, living: Living | None = None) -> None:
        """Ask the actors that live, if there are any, and fold what does not."""
        self._log = log
        self._living = living

    async def place(self, at: str | int) -> Mark:
        """Find the place that a cursor or an instant (UTC nanoseconds) names."""
        if isinstance(at, int):
            return await self._log.mark_before(at)
        return await self._log.resolve(at)

    async def now(self, principal: Principal, run_id: str) -> Folded[Run]:
        """Give a run as it is."""
        return _visible(principal, run_id, await self._known(stream_of(run_id)))

    async def at(self, principal: Principal, run_id: str, at: Mark) -> Folded[Run]:
        """Give a run as it was at a place in the log."""
        stream = stream_of(run_id)
        known = None
        if self._living is not None and self._living.peek(stream) is not None:
            known = await self._living.look_briefly(stream)  # with all it has written up to there
        if known is None or known.mark.position > at.position:
            known = await self._folded(stream, at)
        return _visible(principal, run_id, known)

    async def _known(self, stream: str) -> Folded[Run] | None:
        """Give a run with all that was acknowledged; where nothing can be written, as it is."""
        known = None
        if self._living is not None:
            try:
                known = await self._living.look_briefly(stream)
            except NoSuchActor:
                return None
        return known or await self._folded(stream)

    async def all_at(
        self, principal: Principal, run_ids: Iterable[str], at: Mark
    ) -> list[Folded[Run]]:
        """Give runs as they were at a place in the log; one that cannot be read is left out."""
        found = []
        for run_id in run_ids:
            try:
                found.append(await self.at(principal, run_id, at))
            except (Crashed, UnreadableRecord):
                _log.exception("run %s is left out of a list", run_id)
        return found

    async def _folded(self, stream: str, at: Mark | None = None) -> Folded[Run] | None:
        return await fold_stream(self._log, RUN, stream, at=at)

    async def require(self, principal: Principal, run_id: str) -> RunCreated:
        """Raise RUN_NOT_FOUND unless there is such a run; say how it was created."""
        known = None if self._living is None else self._living.peek(stream_of(run_id))
        if known is None:
            return (await self.now(principal, run_id)).state.created
        return _visible(principal, run_id, known).state.created

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
                        found.append(export_item(run_id, item))
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


def _visible(principal: Principal, run_id: str, folded: Folded[Run] | None) -> Folded[Run]:
    if folded is None or folded.state.created.tenant != principal.tenant:
        raise OperationError("RUN_NOT_FOUND", "there is no such run", run_id=run_id)
    return folded
