"""Runs as a log holds them, read beside the process that writes it or without one."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from perdure.runtime.kernel.feature import Part
from perdure.runtime.runs.index import RUN_LISTING, RunTables
from perdure.runtime.runs.plugin_list import PluginList
from perdure.runtime.runs.queries import RunQueries
from perdure.runtime.runs.reader import RunReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perdure.eventlog.record import Mark
    from perdure.runtime.kernel.log_reader import LogReader
    from perdure.runtime.plugins.loading import LoadedPlugins, Problem
    from perdure.runtime.plugins.plugin import Plugin
    from perdure.runtime.runs.index import Listed, RunFilter


class StoredIndex:
    """Lists of runs, from tables that are read when somebody asks."""

    def __init__(self, reader: LogReader) -> None:
        """Read the tables of one log."""
        self._reader = reader

    @property
    def _tables(self) -> RunTables:
        return RunTables(self._reader.listing(RUN_LISTING))

    async def list(
        self, where: RunFilter, *, before: int | None = None, at: Mark | None = None, limit: int
    ) -> tuple[Sequence[Listed], Mark]:
        """List runs, newest first, and say at which place in the log this is true."""
        true_at = at or await self._reader.log.head()  # tables read after it know all up to there
        found = self._tables.runs(where, before=before, at=true_at.position, limit=limit)
        return found, true_at

    async def find(self, beginning: str, tenant: str, limit: int) -> tuple[Sequence[str], Mark]:
        """List ids that begin with a text, and say at which place in the log this is true."""
        true_at = await self._reader.log.head()
        return self._tables.beginning_with(beginning, tenant, limit), true_at


class StoredRuns(Part):
    """Runs that are read, and the plugins that this process would execute them with."""

    def __init__(self, log: LogReader, loaded: LoadedPlugins | None = None) -> None:
        """Read a log; plugins are loaded when somebody asks for them, unless they are already."""
        self._settings = log.settings
        self._given = loaded
        self.index = StoredIndex(log)
        self.reader = RunReader(log.log)
        self.services = [
            RunQueries(log.log, self.index, self.reader),
            PluginList(log.log, self._plugins, is_local=True),
        ]

    def _plugins(self) -> tuple[Mapping[str, Plugin], Sequence[Problem]]:
        return self._loaded.plugins, self._loaded.problems

    @cached_property
    def _loaded(self) -> LoadedPlugins:
        from perdure.runtime.plugins.loading import load_plugins  # noqa: PLC0415 - few need it
        from perdure.runtime.runs.settings import RunSettings  # noqa: PLC0415

        return self._given or load_plugins(self._settings.of(RunSettings))
