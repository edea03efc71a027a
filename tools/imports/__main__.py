"""The command: ``python -m tools.imports [--revision REV] [--check] [--lines [--against REV]]``.

Draws which packages import which, by layers: as an SVG file, and as Mermaid on standard output.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tools.imports.graph import FOLDERS, Edge, Graph, UnplacedPackage
from tools.imports.layers import FILE, Layers
from tools.imports.lines import moves, sizes, table
from tools.imports.mermaid import mermaid
from tools.imports.svg import svg
from tools.revision import ROOT, UnknownRevision, checked_out, short_hash

TITLE: Final = "Imports between the packages of Perdure"
PICTURE: Final = ROOT / "docs" / "images" / "imports.svg"
BEFORE: Final = PICTURE.with_name("imports-before.svg")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what was asked for; give the exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.lines:
            return _lines(options.against)
        with _sources(options.revision) as root:
            graph = Graph.of(root, Layers.read(FILE.read_text("utf-8")))
    except (UnknownRevision, UnplacedPackage) as error:
        print(error, file=sys.stderr)
        return 2
    title = f"{TITLE}, {short_hash(options.revision)}" if options.revision else TITLE
    picture = svg(graph, title)
    path = options.output or (BEFORE if options.revision else PICTURE)
    if options.check:
        return _check(path, picture)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(picture, "utf-8")
    print(mermaid(graph), end="")
    print(_listed("Against the order of layers", graph.against, graph), end="")
    print(_listed("Cycles inside a layer", graph.cyclic, graph), end="")
    print(f"\nwritten to {path}", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.imports", description=__doc__)
    parser.add_argument("--revision", metavar="REV", help="draw another revision")
    parser.add_argument("--output", metavar="FILE", type=Path, help="where the SVG goes")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if the file differs"
    )
    parser.add_argument("--lines", action="store_true", help="a table of shipped lines instead")
    parser.add_argument("--against", metavar="REV", help="with --lines: beside another revision")
    return parser


@contextmanager
def _sources(revision: str | None) -> Iterator[Path]:
    """Give the root of these files, or of another revision's."""
    if revision is None:
        yield ROOT
    else:
        with checked_out(revision) as root:
            yield root


def _check(path: Path, picture: str) -> int:
    """Tell whether a committed picture is that of the code."""
    if path.exists() and path.read_text("utf-8") == picture:
        return 0
    print(f"{path} is not what the code is: run python -m tools.imports", file=sys.stderr)
    return 1


def _listed(title: str, edges: Sequence[Edge], graph: Graph) -> str:
    """List edges with the modules that make them."""
    lines = [f"\n{title}: {len(edges) or 'none'}\n"]
    for edge in edges:
        modules = sorted({(each.importer, each.imported) for each in graph.imports[edge]})
        lines.append(f"\n  {edge[0]} -> {edge[1]}\n")
        lines += [f"    {importer} imports {imported}\n" for importer, imported in modules]
    return "".join(lines)


def _lines(against: str | None) -> int:
    """Print how large packages are, and were."""
    if against is None:
        print(table(sizes(ROOT)), end="")
        return 0
    with checked_out(against) as root:
        before = sizes(root)
    print(f"Before: {short_hash(against)}. Code: lines without blanks, comments, docstrings.\n")
    print(table(sizes(ROOT), before))
    print(moves(_renames(against)), end="")
    return 0


def _renames(against: str) -> Iterator[tuple[str, str]]:
    """Ask git which modules have another path now."""
    git = ("git", "-C", str(ROOT), "diff", "--find-renames=30%", "--diff-filter=R", "-z")
    done = subprocess.run(
        [*git, "--name-status", short_hash(against), "--", "*.py"],
        check=True,
        capture_output=True,
        text=True,
    )
    words = done.stdout.split("\0")
    for _, *paths in zip(words[0::3], words[1::3], words[2::3], strict=False):
        if all(path.partition("/")[0] in FOLDERS for path in paths):
            yield paths[0], paths[1]


if __name__ == "__main__":
    sys.exit(main())
