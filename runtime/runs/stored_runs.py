"""Runs as a log holds them, read beside the process that writes it or without one."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from perdure.runtime.kernel.feature import Part
from perdure.runtime.runs.index import RUN_LISTING, RunIndex
from perdure.runtime.runs.plugin_list import PluginList
from perdure.runtime.runs.queries import RunQueries
from perdure.runtime.runs.reader import RunReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perdure.runtime.kernel.log_reader import LogReader
    from perdure.runtime.plugins.loading import LoadedPlugins, Problem
    from perdure.runtime.plugins.plugin import Plugin


class StoredRuns(Part):
    """Runs that are read, and the plugins that this process would execute them with."""

    def __init__(self, log: LogReader, loaded: LoadedPlugins | None = None) -> None:
        """Read a log; plugins are loaded when somebody asks for them, unless they are already."""
        self._settings = log.settings
        self._given = loaded
        self.index = RunIndex(log.listing(RUN_LISTING))
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
