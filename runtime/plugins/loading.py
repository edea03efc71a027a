"""Loading plugins: from modules, from entry points of installed packages, from folders.

A plugin that cannot be loaded is a problem with a place and a remedy; all others are loaded. What
is loaded anew is imported anew too, beside what was there before: runs that are under way go on
with the modules they have.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perdure.runtime.plugins.code_files import modules_of
from perdure.runtime.plugins.document import Document
from perdure.runtime.plugins.importing import imported_anew
from perdure.runtime.plugins.manifest import MANIFEST, read_manifest
from perdure.runtime.plugins.plugin import DeclarationError, Plugin, declared

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from perdure.runtime.plugins.settings import PluginSettings

GROUP: Final = "perdure.plugins"  # the entry-point group of packages that bring plugins
DEMO: Final = "perdure.demo"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSource:
    """Where plugins come from: a module, or one class of it, or a folder."""

    name: str  # as people know it
    module: str = ""
    only: str | None = None
    folder: Path | None = None
    is_empty: bool = False  # the folder was to have a plugin.toml, and has none


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why something was not loaded, where, and what to do about it."""

    source: str  # what was to be loaded
    message: str
    remedy: str
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        """Say it to people."""
        place = f" ({self.file}, line {self.line})" if self.file else ""
        end = "" if self.message.endswith("?") else "."
        return f"{self.source} was not loaded{place}: {self.message}{end} {self.remedy}"


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """What a source has brought: plugins by id, and what went wrong."""

    plugins: Mapping[str, Plugin] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadedPlugins:
    """What all sources have brought."""

    outcomes: Mapping[PluginSource, LoadOutcome] = field(default_factory=dict)

    @property
    def plugins(self) -> dict[str, Plugin]:
        """The plugins by id."""
        brought = [outcome.plugins for outcome in self.outcomes.values()]
        return {plugin_id: plugin for each in brought for plugin_id, plugin in each.items()}

    @property
    def problems(self) -> list[Problem]:
        """What went wrong."""
        return [problem for outcome in self.outcomes.values() for problem in outcome.problems]


def load_plugins(settings: PluginSettings) -> LoadedPlugins:
    """Load all that the settings and the installed packages name."""
    _find_here(settings.modules)
    outcomes: dict[PluginSource, LoadOutcome] = {}
    for source in (*named_sources(settings), *installed_sources()):
        outcomes[source] = load_source(source, taken(outcomes, source))
    return LoadedPlugins(outcomes)


def _find_here(modules: Iterable[str]) -> None:
    """Let modules that lie in the working directory be imported, as ``python -m`` does."""
    here = Path.cwd()
    tops = [here / name.partition(".")[0] for name in modules]
    lies_here = any(top.is_dir() or top.with_suffix(".py").is_file() for top in tops)
    if lies_here and str(here) not in sys.path:
        sys.path.insert(0, str(here))


def named_sources(settings: PluginSettings) -> list[PluginSource]:
    """Give the sources that the settings name, folders as they are now."""
    modules = ([DEMO] if settings.demo else []) + list(settings.modules)
    named = [PluginSource(name=f"module {name}", module=name) for name in modules]
    for folder in settings.plugins:
        named.extend(_folders(Path(folder)))
    return named


def installed_sources() -> list[PluginSource]:
    """Give the sources that installed packages name."""
    return [
        PluginSource(name=f"entry point {found.name}", module=found.module, only=found.attr or None)
        for found in sorted(entry_points(group=GROUP), key=lambda found: found.name)
    ]


def _folders(folder: Path) -> list[PluginSource]:
    """Find a folder with a plugin.toml, or each folder in it that has one."""
    if (folder / MANIFEST).is_file():
        return [PluginSource(name=f"folder {folder}", folder=folder)]
    found = sorted(path.parent for path in folder.glob(f"*/{MANIFEST}"))
    if not found:
        return [PluginSource(name=f"folder {folder}", folder=folder, is_empty=True)]
    return [PluginSource(name=f"folder {each}", folder=each) for each in found]


def taken(
    outcomes: Mapping[PluginSource, LoadOutcome], by_others_than: PluginSource
) -> dict[str, PluginSource]:
    """Give the ids that other sources have brought."""
    return {
        plugin_id: source
        for source, outcome in outcomes.items()
        if source != by_others_than
        for plugin_id in outcome.plugins
    }


def load_source(
    source: PluginSource, taken: Mapping[str, PluginSource], *, anew: bool = False
) -> LoadOutcome:
    """Load what a source has, unless its id is taken; ``anew`` imports its modules again."""
    if source.is_empty:
        return LoadOutcome(problems=(_nothing_there(source),))
    try:
        if anew or source.folder is not None:
            with imported_anew(modules_of(source)):
                found = list(_found(source))
        else:
            found = list(_found(source))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the edge of a plugin: whatever it does
        return LoadOutcome(problems=(_problem(error, source),))
    if not found:
        return LoadOutcome(problems=(_nothing_there(source),))
    plugins: dict[str, Plugin] = {}
    problems = []
    for plugin, cls in found:
        owner = source if plugin.id in plugins else taken.get(plugin.id)
        if owner is None:
            plugins[plugin.id] = plugin
        else:
            problems.append(_id_taken(plugin.id, source, owner, cls))
    return LoadOutcome(plugins, tuple(problems))


def _found(source: PluginSource) -> Iterable[tuple[Plugin, type | None]]:
    """Give the plugins of a source, with their classes if they are not a folder's."""
    if source.folder is not None:
        return ((read_manifest(source.folder.resolve()), None),)
    module = importlib.import_module(source.module)
    return [(declared(cls), cls) for cls in _declarations(module, source.only)]


def _declarations(module: ModuleType, only: str | None) -> Iterable[type]:
    for name, value in vars(module).items():
        is_plugin = isinstance(value, type) and "__perdure_plugin__" in vars(value)
        if is_plugin and value.__module__ == module.__name__ and only in {None, name}:
            yield value


# What went wrong


def _nothing_there(source: PluginSource) -> Problem:
    if source.folder is not None:
        return Problem(
            source=source.name,
            message=f"there is no {MANIFEST} in {source.folder}, nor in a folder of it",
            remedy="Write one, or correct the folder in the settings.",
        )
    missing = f"{source.only} in {source.module}" if source.only else source.module
    return Problem(
        source=source.name,
        message=f"{missing} declares no plugin",
        remedy="Decorate a class with @plugin, or take the name out of the settings.",
    )


def _id_taken(
    plugin_id: str, source: PluginSource, owner: PluginSource, cls: type | None
) -> Problem:
    file, line = None, None
    if source.folder is not None:
        path = source.folder / MANIFEST
        file, line = str(path), Document(path).line_of("id")
    elif cls is not None:
        with suppress(OSError, TypeError):  # it has no source
            file, line = inspect.getsourcefile(cls), inspect.getsourcelines(cls)[1]
    return Problem(
        source=source.name,
        message=f"the plugin id {plugin_id!r} is taken by {owner.name}",
        remedy="Rename one of them, or load only one.",
        file=file,
        line=line,
    )


def _problem(error: BaseException, source: PluginSource) -> Problem:
    """Give the place in the plugin's own code that is to blame, and say what to do."""
    lacks = error.name if isinstance(error, ModuleNotFoundError) else None
    if lacks and source.module.startswith(lacks):
        return Problem(
            source=source.name,
            message=f"there is no module {lacks}",
            remedy="Install it, start in the directory it lies in, or correct the name.",
        )
    is_declaration = isinstance(error, DeclarationError)
    file, line = _place(error)
    if source.folder is not None and (told := getattr(error, "line", None)) is not None:
        file, line = str(source.folder / MANIFEST), told
    problem = Problem(
        source=source.name,
        message=str(error) if is_declaration else f"{type(error).__name__}: {error}",
        remedy="Correct the declaration." if is_declaration else "Correct it and load it again.",
        file=file,
        line=line,
    )
    if file is None and source.folder is not None:
        return replace(problem, file=str(source.folder / MANIFEST), line=1)
    return problem


def _place(error: BaseException) -> tuple[str | None, int | None]:
    """Find the line that is to blame: the last one outside of this package."""
    if isinstance(error, SyntaxError):
        return error.filename, error.lineno
    ours = str(Path(__file__).parent)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((ours, "<frozen")):
            return frame.filename, frame.lineno
    return None, None
