"""Layers: which package lies where, and which imports that forbids."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, Self

FILE: Final = Path(__file__).with_name("layers.toml")
LINKED: Final = ("runtime", "actors", "eventlog")  # in perdure since it is one package


@dataclass(frozen=True, slots=True)
class Layer:
    """Packages that stand side by side, and what they may import of each other."""

    name: str
    packages: tuple[str, ...]
    order: Literal["any", "earlier", "none"] = "any"


@dataclass(frozen=True)
class Layers:
    """All layers, top first."""

    layers: tuple[Layer, ...]

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what the file says."""
        return cls(
            tuple(
                Layer(**{**each, "packages": tuple(each["packages"])})
                for each in tomllib.loads(text)["layer"]
            )
        )

    def package_of(self, module: str) -> str | None:
        """Give the package that a module or a name in it belongs to; None if it is not ours."""
        name = module
        head, _, rest = name.partition(".")
        if head == "perdure" and rest.partition(".")[0] in LINKED:
            name = rest
        while name and name not in self._places:
            name = name.rpartition(".")[0]
        return name or None

    def level(self, package: str) -> int:
        """Give the number of a package's layer; 0 is the top."""
        return self._places[package][0]

    def forbids(self, importer: str, imported: str) -> bool:
        """Tell whether an import goes against the order of the layers."""
        (above, place), (below, other) = self._places[importer], self._places[imported]
        if above != below:
            return above > below
        order = self.layers[above].order
        return order == "none" or (order == "earlier" and place < other)

    def missing(self, packages: Sequence[str]) -> list[str]:
        """Give the packages that are in no layer by their own name."""
        return [package for package in packages if package not in self._places]

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        return {
            package: (number, place)
            for number, layer in enumerate(self.layers)
            for place, package in enumerate(layer.packages)
        }
