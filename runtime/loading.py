"""Loading plugins: from modules, from entry points of installed packages, from folders.

A plugin that cannot be loaded is a problem with a place and a remedy; all others are loaded.
"""

from __future__ import annotations

import importlib
import re
import traceback
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Final

from runtime.manifest import MANIFEST, read_manifest
from runtime.plugin import DeclarationError, Plugin, declared

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from runtime.settings import Settings

GROUP: Final = "perdure.plugins"  # the entry-point group of packages that bring plugins
DEMO: Final = "perdure.demo"


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
        return f"{self.source} was not loaded{place}: {self.message}. {self.remedy}"


@dataclass(slots=True)
class Loaded:
    """Plugins by id, and what went wrong."""

    plugins: dict[str, Plugin] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    _sources: dict[str, str] = field(default_factory=dict)

    def add(self, plugin: Plugin, source: str) -> None:
        """Take a plugin in, unless its id is taken."""
        if plugin.id in self.plugins:
            self.problems.append(
                Problem(
                    source=source,
                    message=f"the plugin id {plugin.id!r} is taken by {self._sources[plugin.id]}",
                    remedy="Rename one of them, or load only one.",
                )
            )
            return
        self.plugins[plugin.id] = plugin
        self._sources[plugin.id] = source


def load_plugins(settings: Settings) -> Loaded:
    """Load all that the settings and the installed packages name."""
    loaded = Loaded()
    modules = ([DEMO] if settings.demo else []) + list(settings.modules)
    for name in modules:
        _load_module(loaded, name, f"module {name}")
    for folder in settings.plugins:
        _load_folder(loaded, Path(folder))
    for found in sorted(entry_points(group=GROUP), key=lambda found: found.name):
        _load_module(loaded, found.module, f"entry point {found.name}", only=found.attr or None)
    return loaded


def _load_folder(loaded: Loaded, folder: Path) -> None:
    """Load a folder with a plugin.toml, or each folder in it that has one."""
    found = (
        [folder]
        if (folder / MANIFEST).is_file()
        else sorted(path.parent for path in folder.glob(f"*/{MANIFEST}"))
    )
    if not found:
        problem = f"there is no {MANIFEST} in {folder}, nor in a folder of it"
        remedy = "Write one, or correct the folder in the settings."
        loaded.problems.append(Problem(source=f"folder {folder}", message=problem, remedy=remedy))
    for each in found:
        source = f"folder {each}"
        try:
            loaded.add(read_manifest(each.resolve()), source)
        except Exception as error:  # noqa: BLE001 - the edge of a plugin: whatever it does
            problem_found = _problem(error, source, "")
            if problem_found.file is None:
                problem_found = replace(problem_found, file=str(each / MANIFEST), line=_line(error))
            loaded.problems.append(problem_found)


def _line(error: Exception) -> int:
    """Find the line of a TOML file that an error tells of; 1 if it tells none."""
    told = re.search(r"at line (\d+)", str(error))
    return int(told[1]) if told else 1


def _load_module(loaded: Loaded, name: str, source: str, *, only: str | None = None) -> None:
    try:
        module = importlib.import_module(name)
        classes = list(_declarations(module, only))
        for cls in classes:
            loaded.add(declared(cls), source)
    except Exception as error:  # noqa: BLE001 - the edge of a plugin: whatever it does when imported
        loaded.problems.append(_problem(error, source, name))
        return
    if not classes:
        missing = f"{only} in {name}" if only else name
        loaded.problems.append(
            Problem(
                source=source,
                message=f"{missing} declares no plugin",
                remedy="Decorate a class with @plugin, or take the name out of the settings.",
            )
        )


def _declarations(module: ModuleType, only: str | None) -> Iterable[type]:
    for name, value in vars(module).items():
        is_plugin = isinstance(value, type) and "__perdure_plugin__" in vars(value)
        if is_plugin and value.__module__ == module.__name__ and only in {None, name}:
            yield value


def _problem(error: Exception, source: str, name: str) -> Problem:
    """Give the place in the plugin's own code that is to blame, and say what to do."""
    if isinstance(error, ModuleNotFoundError) and error.name and name.startswith(error.name):
        return Problem(
            source=source,
            message=f"there is no module {error.name}",
            remedy="Install it, or correct the name in the settings.",
        )
    is_declaration = isinstance(error, DeclarationError)
    file, line = _place(error)
    return Problem(
        source=source,
        message=str(error) if is_declaration else f"{type(error).__name__}: {error}",
        remedy="Correct the declaration." if is_declaration else "Correct it and load it again.",
        file=file,
        line=line,
    )


def _place(error: Exception) -> tuple[str | None, int | None]:
    """Find the line that is to blame: the last one outside of this package."""
    if isinstance(error, SyntaxError):
        return error.filename, error.lineno
    ours = str(Path(__file__).parent)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((ours, "<frozen")):
            return frame.filename, frame.lineno
    return None, None
