"""Shipped lines of each package, in one revision or in two beside each other, as Markdown."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from tools.imports.graph import FOLDERS

_NO_CODE: Final = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}


class Size(NamedTuple):
    """So many modules, lines, and lines with code."""

    modules: int = 0
    lines: int = 0
    code: int = 0

    def plus(self, other: Size) -> Size:
        """Give the size of both."""
        return Size(*(a + b for a, b in zip(self, other, strict=True)))


def package_at(path: str) -> str:
    """Give the package of a file: its folder, or the first folder in it."""
    return ".".join(PurePosixPath(path).parts[:-1][:2])


def sizes(root: Path) -> dict[str, Size]:
    """Measure every package of a root."""
    found: dict[str, Size] = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):  # links are not followed
            package = package_at(path.relative_to(root).as_posix())
            text = path.read_text("utf-8")
            size = Size(1, len(text.splitlines()), code_lines(text))
            found[package] = found.get(package, Size()).plus(size)
    return found


def code_lines(text: str) -> int:
    """Count the lines that hold code: no blank ones, comments or docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - set(_docstring_lines(ast.parse(text))))


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            yield from range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1)


def table(after: Mapping[str, Size], before: Mapping[str, Size] | None = None) -> str:
    """Give the sizes of packages, and of one or two revisions, as a table."""
    columns = [after] if before is None else [before, after]
    packages = sorted({package for column in columns for package in column}, key=_order)
    totals = [_sum(column.values()) for column in columns]
    parts = ("modules", "lines", "code") if before is None else _beside("modules", "lines", "code")
    lines = [_row("package", parts), "|---|" + "---:|" * len(parts)]
    lines += [
        _row(f"`{package}`", _figures([column.get(package) for column in columns]))
        for package in packages
    ]
    lines.append(_row("all", _figures(totals)))
    return "\n".join(lines) + "\n"


def moves(renames: Iterable[tuple[str, str]]) -> str:
    """Say which packages the modules of a package have gone to, from pairs of paths."""
    ways = Counter((package_at(old), package_at(new)) for old, new in renames)
    lines = [_row("modules of", ("went to", "modules")), "|---|---|---:|"]
    for (old, new), count in sorted(ways.items(), key=lambda way: (_order(way[0][0]), -way[1])):
        if old != new:
            lines.append(_row(f"`{old}`", (f"`{new}`", str(count))))
    return "\n".join(lines) + "\n"


def _beside(*names: str) -> tuple[str, ...]:
    return tuple(f"{name} {when}" for name in names for when in ("before", "after"))


def _figures(found: Sequence[Size | None]) -> list[str]:
    """Give modules, lines and code of each revision, beside each other; nothing where none is."""
    figures = [[""] * 3 if size is None else [f"{value:,}" for value in size] for size in found]
    return [column[number] for number in range(3) for column in figures]


def _sum(found: Iterable[Size]) -> Size:
    total = Size()
    for size in found:
        total = total.plus(size)
    return total


def _order(package: str) -> tuple[int, str]:
    return FOLDERS.index(package.partition(".")[0]), package


def _row(first: str, others: Iterable[str]) -> str:
    return f"| {' | '.join([first, *others])} |"
