"""Importing modules once more, beside those that are in use.

Modules that were imported before are not touched: whoever has classes or functions of them goes on
with them, and with the modules that those have imported. New ones take their places in
``sys.modules``; if importing fails, the old ones get them back.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Which = Callable[[str, str | None], bool]  # by a module's name and its file


@contextmanager
def imported_anew(which: Which) -> Iterator[None]:
    """Have some modules imported in the block as if they never had been."""
    importlib.invalidate_caches()
    before = _known(which)
    for name in before:
        del sys.modules[name]
    try:
        yield
    except BaseException:
        for name in _known(which):
            del sys.modules[name]
        sys.modules.update(before)
        raise


def file_of(module: Any) -> str | None:  # noqa: ANN401 - whatever is in sys.modules
    """Give the file that a module was imported from, if it is one."""
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else None


def package_of(module: str) -> str:
    """Give the package at the top that a module belongs to; one without a package is its own."""
    return module.partition(".")[0]


def _known(which: Which) -> dict[str, Any]:
    known = sys.modules.copy()
    return {name: module for name, module in known.items() if which(name, file_of(module))}
