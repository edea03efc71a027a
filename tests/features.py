"""The features that the generic tests try: Perdure's own, and those that live in the tests."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Final

from perdure.runtime.features import FEATURES
from perdure.runtime.kernel.feature import Feature
from perdure.runtime.kernel.features import Features
from tests.repository.tree import ROOT


def _found() -> Iterator[Feature]:
    for path in sorted(ROOT.glob("tests/*/feature.py")):
        module = import_module(f"tests.{path.parent.name}.feature")
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, Feature) and kind.__module__ == module.__name__:
                yield kind()


TRIED: Final = Features([*FEATURES, *_found()])
