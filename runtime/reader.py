"""Reading runs: as they are and as they were, by whoever may see them.

A run of another tenant is one that does not exist.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from actors.errors import Crashed, NoSuchActor
from actors.folding import fold_stream
from actors.run.core import RUN, Run
from actors.run.events import RUN_EVENTS, ExportAppended
from actors.run.views import ExportItem, export_item
from eventlog.errors import CodecError, Overloaded
from runtime.errors import OperationError
from runtime.streams import stream_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from actors.folded import Folded
    from eventlog.record import Mark
    from runtime.host import Host
    from runtime.principal import Principal


_log = logging.getLogger("perdure.runs")


class RunReader:
    """Reads the runs of one host."""

    def __init__(self, host: Host) -> None:
        """Ask the actors that live, and fold what does not."""
        self._runs = host.runs
        self._log = host.log

    async def place(self, at: str | int) -> Mark:
        """Find the place that a cursor or an instant (UTC nanoseconds) names."""
        if isinstance(at, int):
            return await self._log.mark_before(at)
        return await self._log.resolve(at)

    async def now(self, principal: Principal, run_id: str) -> Folded[Run]:
        """Give a run as it is."""
        try:
            folded = await self._runs.look(stream_of(run_id))
        except NoSuchActor:
            folded = None
        return _visible(principal, run_id, folded)

    async def at(self, principal: Principal, run_id: str, at: Mark) -> Folded[Run]:
        """Give a run as it was at a place in the log."""
        stream = stream_of(run_id)
        known = None
        if self._runs.peek(stream) is not None:
            with suppress(Overloaded):  # then it is folded like one that does not live
                known = await self._runs.look(stream)  # after all that it has written up to there
        if known is None or known.mark.position > at.position:
            try:
                known = await fold_stream(self._log, RUN, stream, at=at)
            except CodecError as error:
                raise Crashed(f"{stream} cannot be read: {error}") from error
        return _visible(principal, run_id, known)

    async def all_at(
        self, principal: Principal, run_ids: Iterable[str], at: Mark
    ) -> list[Folded[Run]]:
        """Give runs as they were at a place in the log; one that cannot be read is left out."""
        found = []
        for run_id in run_ids:
            try:
                found.append(await self.at(principal, run_id, at))
            except Crashed:
                _log.exception("run %s is left out of a list", run_id)
        return found

    async def require(self, principal: Principal, run_id: str) -> None:
        """Raise RUN_NOT_FOUND unless there is such a run."""
        known = self._runs.peek(stream_of(run_id))
        if known is None:
            await self.now(principal, run_id)
        else:
            _visible(principal, run_id, known)

    async def items(self, folded: Folded[Run], wanted: Container[int]) -> list[ExportItem]:
        """Read some of the items that a run has put out, by number."""
        run_id, version = folded.state.created.run_id, 0
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
        return found


def _visible(principal: Principal, run_id: str, folded: Folded[Run] | None) -> Folded[Run]:
    if folded is None or folded.state.created.tenant != principal.tenant:
        raise OperationError("RUN_NOT_FOUND", "there is no such run", run_id=run_id)
    return folded
