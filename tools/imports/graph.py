"""The graph of imports between packages, read from the code: none is run.

Every import counts: at the top of a module, inside a function, and for types only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

from tools.imports.layers import Layers

FOLDERS: Final = ("perdure", "runtime", "actors", "eventlog")  # all that ships

Edge = tuple[str, str]


class UnplacedPackage(Exception):
    """A package is in no layer."""


class When(IntEnum):
    """When an import takes place; the strongest counts for an edge."""

    FOR_TYPES = 0
    IN_FUNCTION = 1
    AT_ONCE = 2


class Import(NamedTuple):
    """A module imports a module, or a name in it."""

    importer: str
    imported: str
    when: When


@dataclass(frozen=True)
class Graph:
    """Packages, and the imports from one to another."""

    layers: Layers
    imports: Mapping[Edge, tuple[Import, ...]]

    @classmethod
    def of(cls, root: Path, layers: Layers) -> Graph:
        """Read the sources in the folders of a root."""
        return cls.of_imports(_imports(root, layers), layers)

    @classmethod
    def of_imports(cls, imports: Iterable[Import], layers: Layers) -> Graph:
        """Put imports together by package."""
        found: dict[Edge, list[Import]] = {}
        for each in imports:
            importer, imported = layers.package_of(each.importer), layers.package_of(each.imported)
            if importer and imported and importer != imported:
                found.setdefault((importer, imported), []).append(each)
        return cls(layers, {edge: tuple(found[edge]) for edge in sorted(found)})

    @property
    def packages(self) -> list[str]:
        """All packages that import or are imported, by layer."""
        present = {package for edge in self.imports for package in edge}
        return [p for layer in self.layers.layers for p in layer.packages if p in present]

    @property
    def against(self) -> list[Edge]:
        """The edges that go against the order of the layers."""
        return [edge for edge in self.imports if self.layers.forbids(*edge)]

    @property
    def cyclic(self) -> list[Edge]:
        """The edges inside a layer that lead back to where they begin, and are not forbidden."""
        inside = {e for e in self._allowed if self.layers.level(e[0]) == self.layers.level(e[1])}
        return [(a, b) for a, b in self.imports if (a, b) in inside and _leads(b, a, inside)]

    @property
    def drawn(self) -> list[Edge]:
        """The edges that do not follow from others: a transitive reduction of those in order."""
        cyclic = set(self.cyclic)
        orderly = self._allowed - cyclic
        return [
            edge
            for edge in self.imports
            if edge not in orderly or not _leads(*edge, orderly - {edge})
        ]

    def when(self, edge: Edge) -> When:
        """Give when the strongest import of an edge takes place."""
        return max(each.when for each in self.imports[edge])

    @property
    def _allowed(self) -> set[Edge]:
        return set(self.imports) - set(self.against)


def _leads(begin: str, end: str, edges: Iterable[Edge]) -> bool:
    """Tell whether a path of edges leads from one package to another."""
    after: dict[str, list[str]] = {}
    for a, b in edges:
        after.setdefault(a, []).append(b)
    seen, left = {begin}, [begin]
    while left:
        found = set(after.get(left.pop(), ())) - seen
        if end in found:
            return True
        seen |= found
        left += found
    return False


def _imports(root: Path, layers: Layers) -> Iterator[Import]:
    """Read all imports of the modules that ship."""
    packages = [
        f"{folder}.{path.parent.name}"
        for folder in ("runtime", "actors")
        for path in sorted((root / folder).glob("*/__init__.py"))
    ]
    if missing := layers.missing(packages):
        raise UnplacedPackage(f"{', '.join(missing)}: in no layer of tools/imports/layers.toml")
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):  # links are not followed
            name = path.relative_to(root).with_suffix("").parts
            package = name[:-1]
            module = ".".join(package if name[-1] == "__init__" else name)
            tree = ast.parse(path.read_text("utf-8"), str(path))
            for imported, when in _imported(tree.body, ".".join(package), When.AT_ONCE):
                yield Import(module, imported, when)


def _imported(body: Iterable[ast.AST], package: str, when: When) -> Iterator[tuple[str, When]]:
    """Give what statements import, and when."""
    for node in body:
        match node:
            case ast.Import(names=names):
                yield from ((alias.name, when) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                parts = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                base = ".".join([*parts, *([module] if module else [])])
                yield from ((f"{base}.{alias.name}", when) for alias in names)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                inside = min(when, When.IN_FUNCTION)
                yield from _imported(ast.iter_child_nodes(node), package, inside)
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                yield from _imported(node.body, package, When.FOR_TYPES)
                yield from _imported(node.orelse, package, when)
            case _:
                yield from _imported(ast.iter_child_nodes(node), package, when)
