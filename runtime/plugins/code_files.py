"""The files that a plugin's code consists of: found, looked at, copied.

They are the modules in its folder together with its ``plugin.toml``, or those in the package of
its module. What an executable reads when it is started is as it is then, and not among them.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perdure.runtime.plugins.importing import file_of, package_of
from perdure.runtime.plugins.manifest import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from importlib.machinery import ModuleSpec

    from perdure.runtime.plugins.loading import PluginSource

OWN: Final = "perdure"  # the package that is never loaded anew
_NOT_OURS: Final = frozenset({"__pycache__", "node_modules"})


def stamps_of(source: PluginSource) -> dict[str, tuple[int, ...]]:
    """Give the files of a source, each with what changes when the file does."""
    stamps: dict[str, tuple[int, ...]] = {}
    for file in _files(source):
        try:
            found = file.stat()
        except OSError:
            continue  # it is just being replaced
        stamps[str(file)] = (found.st_mtime_ns, found.st_size, found.st_ino)
    return stamps


def modules_of(source: PluginSource) -> Callable[[str, str | None], bool]:
    """Tell modules that are a source's to import, by name and file, from all others.

    For a folder they are those in it, and those of the same name in folders of other plugins.
    """
    if source.folder is None:
        top = package_of(source.module)
        return lambda name, _: package_of(name) == top and top != OWN
    folder = source.folder.resolve()
    files = {str(file) for file in _modules(folder)}
    others = {path.stem for path in folder.iterdir() if _is_of_a_plugin(path.stem)}
    return lambda name, file: (
        package_of(name) != OWN and (package_of(name) in others or file in files)
    )


def _is_of_a_plugin(top: str) -> bool:
    """Tell whether a module that is known by this name was imported from a plugin's folder."""
    known = file_of(sys.modules.get(top))
    if known is None:
        return False
    file = Path(known)
    folder = file.parent.parent if file.stem == "__init__" else file.parent
    return (folder / MANIFEST).is_file() or not file.exists()  # it was renamed, or is gone


def drop_bytecode(files: Iterable[str]) -> None:
    """Remove what was compiled of files: it would pass for others of the same size and second."""
    for file in files:
        with suppress(OSError, NotImplementedError):
            Path(cache_from_source(file)).unlink(missing_ok=True)


def copy_code(source: PluginSource, into: Path) -> None:
    """Copy the modules of a source so that they can be imported from there.

    What is no module is linked: code finds what lies beside it.
    """
    into.mkdir(parents=True)
    for root in _roots(source):
        target = into if source.folder is not None else into / root.name
        if root.is_file():
            shutil.copyfile(root, target)
        else:
            _mirror(root, target)


def _mirror(folder: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for path in folder.iterdir():
        there = target / path.name
        if path.suffix == ".py" and path.is_file():
            shutil.copyfile(path, there)
        elif _may_hold_code(path) and next(_modules(path), None) is not None:
            _mirror(path, there)
        elif path.name != "__pycache__" and not there.exists():
            there.symlink_to(path.absolute())


def _files(source: PluginSource) -> Iterator[Path]:
    if source.folder is not None:
        yield source.folder / MANIFEST
    for root in _roots(source):
        if root.is_dir():
            yield from _modules(root)
        else:
            yield root


def _roots(source: PluginSource) -> list[Path]:
    """Give the folders, or the one file, that a source's modules are in."""
    if source.folder is not None:
        return [] if source.is_empty else [source.folder]
    top = package_of(source.module)
    spec = None if top == OWN else _spec(top)
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return [Path(each) for each in spec.submodule_search_locations]
    return [Path(spec.origin)] if spec.has_location and spec.origin else []


def _spec(top: str) -> ModuleSpec | None:
    """Find a module where it would be imported from now, and not where it once came from."""
    for finder in sys.meta_path:
        spec = finder.find_spec(top, None)
        if spec is not None:
            return spec
    return None


def _modules(folder: Path) -> Iterator[Path]:
    for path, folders, files in os.walk(folder):
        here = Path(path)
        folders[:] = [name for name in folders if _may_hold_code(here / name)]
        yield from (here / name for name in files if name.endswith(".py"))


def _may_hold_code(path: Path) -> bool:
    """Tell whether a folder may hold modules of the plugin, and not what it has installed."""
    is_ours = not path.name.startswith(".") and path.name not in _NOT_OURS
    is_folder = path.is_dir() and not path.is_symlink()
    return is_ours and is_folder and not (path / "pyvenv.cfg").exists()
