"""Runs as a log holds them, read beside the process that writes it or without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.log_reader import completed
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.runs.index import RUN_LISTING, RunIndex
from perdure.runtime.runs.queries import RunQueries
from perdure.runtime.runs.reader import RunReader

if TYPE_CHECKING:
    from perdure.runtime.kernel.log_reader import LogReader
    from perdure.runtime.kernel.principal import Principal

ID_LENGTH: Final = 36  # of a whole run id
FEW: Final = 5  # candidates named when a beginning fits several


class StoredRuns(RunQueries):
    """Everything that can be read of runs, without an event loop."""

    def __init__(self, reader: LogReader) -> None:
        """Read a log. The index of runs is read when somebody asks for a list."""
        index = RunIndex(reader.listing(RUN_LISTING))
        super().__init__(reader.log, index, RunReader(reader.log))

    def run_id(self, beginning: str, principal: Principal = LOCAL) -> str:
        """Give the id of the one run that begins so, or raise RUN_NOT_FOUND."""
        if len(beginning) >= ID_LENGTH:
            return beginning
        found = completed(self._index.beginning_with(beginning, principal.tenant, FEW + 1))
        if len(found) == 1:
            return found[0]
        if not found:
            raise OperationError("RUN_NOT_FOUND", f"there is no run {beginning!r}")
        few = "\n".join(f"  {run_id}" for run_id in found[:FEW])
        more = "\n  and more" if len(found) > FEW else ""
        raise OperationError(
            "RUN_NOT_FOUND", f"{beginning!r} fits several runs; give more of the id:\n{few}{more}"
        )
