"""The operation on plugins: what can be run, and what could not be loaded."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from perdure.runtime.kernel.operations import operation
from perdure.runtime.kernel.principal import Permission, Principal
from perdure.runtime.runs.answers import EntryView, PluginPage, PluginView, ProblemView
from perdure.runtime.runs.requests import ListPlugins

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from perdure.runtime.kernel.actor_reader import Readable
    from perdure.runtime.plugins.loading import Problem
    from perdure.runtime.plugins.plugin import Entry, Plugin

    Loaded = Callable[[], tuple[Mapping[str, Plugin], Sequence[Problem]]]

# All of an absolute path but its last part.
_FOLDERS: Final = re.compile(r"(?<![\w/:])/(?:[^\s'\"/]+/)*(?=[^\s'\"/])")
_FOLDER: Final = "folder "  # what comes from one is called so


class PluginList:
    """The plugins of one process, as callers see them."""

    def __init__(self, log: Readable, loaded: Loaded, *, is_local: bool = False) -> None:
        """``loaded`` gives the plugins as they are now, and what could not be loaded.

        Only callers on this machine are told where the files of that are.
        """
        self._log = log
        self._loaded = loaded
        self._problem_view = problem_view if is_local else told_view

    @operation("plugins.list", Permission.READ)
    async def list(self, principal: Principal, request: ListPlugins) -> PluginPage:  # noqa: ARG002
        """List the plugins that are loaded, what their entries take, and what was not loaded."""
        plugins, problems = self._loaded()
        return {
            "plugins": [plugin_view(plugins[plugin_id]) for plugin_id in sorted(plugins)],
            "problems": [self._problem_view(problem) for problem in problems],
            "cursor": self._log.cursor(await self._log.head()),
        }


def problem_view(problem: Problem) -> ProblemView:
    """Give what could not be loaded, for whoever works on this machine."""
    return {
        "source": problem.source,
        "message": problem.message,
        "remedy": problem.remedy,
        "file": problem.file,
        "line": problem.line,
    }


def told_view(problem: Problem) -> ProblemView:
    """Give what could not be loaded as callers see it: names of files, and no path of ours."""
    source, file = problem.source, problem.file
    if source.startswith(_FOLDER):
        source = _FOLDER + _name(source)
    return {
        "source": source,
        "message": _FOLDERS.sub("", problem.message),
        "remedy": _FOLDERS.sub("", problem.remedy),
        "file": None if file is None else _name(file),
        "line": problem.line,
    }


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2].removeprefix(_FOLDER)


def plugin_view(plugin: Plugin) -> PluginView:
    """Give a plugin as callers see it."""
    return {
        "plugin_id": plugin.id,
        "version": plugin.version,
        "description": plugin.description,
        "limit": plugin.limit,
        "entries": [entry_view(plugin.entries[entry_id]) for entry_id in sorted(plugin.entries)],
    }


def entry_view(entry: Entry) -> EntryView:
    """Give an entry as callers see it."""
    return {
        "entry_id": entry.id,
        "description": entry.description,
        "args": entry.schema,
        "timeout": entry.timeout,
        "resumes": entry.resumes,
    }
