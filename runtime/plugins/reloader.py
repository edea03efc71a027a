"""The reloader: in development, plugins are loaded anew when their files change.

It looks at the files twice a second and loads what has changed and rests. Runs under way go on with
what they began with; those that start from now on get what was loaded last. A plugin that cannot
be loaded again goes on as it was, and the problem is told.

Processes start later than their plugin was loaded, when its files may be others already. So each
load has a copy of its modules, and its processes import from there.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import trio

from perdure.runtime.plugins.changes import Changes, after_reload
from perdure.runtime.plugins.code_files import copy_code, drop_bytecode, stamps_of
from perdure.runtime.plugins.loading import (
    LoadedPlugins,
    LoadOutcome,
    installed_sources,
    load_source,
    named_sources,
    taken,
)
from perdure.runtime.plugins.plugin import programs_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from perdure.eventlog.env import Env
    from perdure.runtime.plugins.changes import Settled, Stamps
    from perdure.runtime.plugins.loading import PluginSource
    from perdure.runtime.plugins.plugin import Entry, Plugin
    from perdure.runtime.plugins.settings import PluginSettings

EVERY: Final = 0.5  # seconds between two looks; a change counts when it has rested for one
_NOTHING: Final = LoadOutcome()
_log = logging.getLogger("perdure.plugins")


class Reloader:
    """Keeps what is loaded up to date with the files."""

    def __init__(self, settings: PluginSettings, loaded: LoadedPlugins, copies: Path) -> None:
        """Take what was just loaded. Copies of modules go into a folder that is there and empty."""
        self._settings = settings
        self._copies = copies
        self._loads = 0
        self._installed = installed_sources()
        self._changes = Changes({source: stamps_of(source) for source in loaded.outcomes})
        pinned = {source: self._pinned(source, each) for source, each in loaded.outcomes.items()}
        self.loaded = LoadedPlugins(pinned)

    async def run(self, env: Env, give: Callable[[LoadedPlugins], Awaitable[None]]) -> None:
        """Give away what is loaded anew, until cancelled."""
        limiter = trio.CapacityLimiter(1)  # its own: importing may take its time
        told = None
        while True:
            await env.sleep(EVERY)
            try:
                if await env.run_and_leave(self.look, limiter=limiter):
                    await give(self.loaded)
                told = None
            except OSError as error:  # a folder that may not be read, say
                if str(error) != told:
                    _log.warning("plugins cannot be looked at, trying again: %s", error)
                told = str(error)

    def look(self) -> bool:
        """Load what has changed and rests; tell whether there was anything."""
        sources = [*named_sources(self._settings), *self._installed]
        seen = {source: stamps_of(source) for source in sources}
        settled = self._changes.look(seen)
        if not any(settled):
            return False
        before = self.loaded.outcomes
        outcomes = {source: each for source, each in before.items() if source not in settled.gone}
        for source in settled.gone:
            had = _named(before.get(source, _NOTHING))
            _log.info("%s is gone, and with it %s", source.name, had or "nothing")
        for source in _to_load(settled, outcomes):
            self._load(source, seen.get(source, {}), outcomes)
        self.loaded = LoadedPlugins(outcomes)
        return True

    def _load(
        self, source: PluginSource, stamps: Stamps, outcomes: dict[PluginSource, LoadOutcome]
    ) -> None:
        """Load a source whose files are as the stamps say; if they change meanwhile, try later."""
        before = outcomes.get(source, _NOTHING)
        drop_bytecode(stamps)
        now = load_source(source, taken(outcomes, source), anew=True)
        try:
            pinned = self._pinned(source, now)
        except OSError as error:  # a file went away, or there is no room
            _log.warning("%s cannot be copied, trying again: %s", source.name, error)
            self._changes.was_not_loaded(source)
            return
        if stamps_of(source) != stamps:
            self._changes.was_not_loaded(source)
            return
        outcomes[source] = after_reload(before, pinned) if stamps else pinned
        if now.plugins:
            _log.info("%s was loaded: %s", source.name, _named(now))
        if now.problems != before.problems:
            for problem in now.problems:
                _log.error("%s", problem)

    def _pinned(self, source: PluginSource, outcome: LoadOutcome) -> LoadOutcome:
        """Have the processes of plugins import a copy of the modules that were loaded."""
        if not any(program.home for program in programs_of(outcome.plugins)):
            return outcome
        self._loads += 1
        code = self._copies / str(self._loads)
        copy_code(source, code)
        plugins = {plugin.id: pinned_to(plugin, str(code)) for plugin in outcome.plugins.values()}
        return replace(outcome, plugins=plugins)


def pinned_to(plugin: Plugin, code: str) -> Plugin:
    """Give a plugin whose processes import its modules from a folder."""

    def pinned(entry: Entry) -> Entry:
        if entry.program is None or entry.program.home is None:
            return entry
        return replace(entry, program=replace(entry.program, code=code))

    return replace(
        plugin, entries={entry_id: pinned(each) for entry_id, each in plugin.entries.items()}
    )


def _to_load(settled: Settled, outcomes: Mapping[PluginSource, LoadOutcome]) -> list[PluginSource]:
    """Give what has changed, and what may load now that something else has."""
    failed = [source for source, outcome in outcomes.items() if outcome.problems]
    return [*settled.changed, *(source for source in failed if source not in settled.changed)]


def _named(outcome: LoadOutcome) -> str:
    return ", ".join(f"{plugin.id} {plugin.version}" for plugin in outcome.plugins.values())
