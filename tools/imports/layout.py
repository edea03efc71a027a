"""A layered layout: packages in rows, long edges through gaps in the rows between.

The usual steps of such drawings (Sugiyama): rows from the layers, a bend for each row that an edge
passes, few crossings by sorting rows after their neighbours, then places that keep edges straight.
Nothing is random, so the same graph gives the same picture.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from tools.imports.graph import Edge, Graph

SWEEPS: Final = 24
GAP: Final = 30.0
BEND: Final = 12.0  # the width that an edge takes in a row that it passes
LETTER: Final = 8.0
PADDING: Final = 17.0
END: Final = 13.0  # the room for an end of an edge at a box
STRAIGHT: Final = 8  # how much more a bend wants to lie under a bend than a box under a box


class Bend(NamedTuple):
    """Where an edge passes a row."""

    edge: Edge
    row: int


Node = str | Bend


@dataclass(frozen=True)
class Layout:
    """Rows of packages and bends, and the middle of each from the left."""

    graph: Graph
    rows: Sequence[Sequence[Node]]
    widths: Mapping[Node, float]
    middles: Mapping[Node, float]
    levels: Sequence[int]  # the layer of each row

    @property
    def row_of(self) -> dict[Node, int]:
        """The row of everything."""
        return {node: number for number, row in enumerate(self.rows) for node in row}

    def way(self, edge: Edge) -> list[Node]:
        """Give what an edge passes from its begin to its end."""
        begin, end = (self.row_of[package] for package in edge)
        step = 1 if end > begin else -1
        return [edge[0], *(Bend(edge, row) for row in range(begin + step, end, step)), edge[1]]


def label(package: str) -> str:
    """Give what is written on a package's box."""
    return package.removeprefix("runtime.") if package != "runtime" else "runtime/*.py"


def layout(graph: Graph) -> Layout:
    """Lay out a graph."""
    packages = _rows(graph)
    levels = [graph.layers.level(row[0]) for row in packages]
    place = {package: number for number, row in enumerate(packages) for package in row}
    rows: list[list[Node]] = [list(row) for row in packages]
    links: list[tuple[Node, Node]] = []
    for edge in graph.drawn:
        low, high = sorted(edge, key=place.__getitem__)
        if place[low] == place[high]:
            continue
        way: list[Node] = [low]
        for row in range(place[low] + 1, place[high]):
            way.append(Bend(edge, row))
            rows[row].append(way[-1])
        way.append(high)
        links += pairwise(way)
    rows = _sorted(rows, links, [e for e in graph.drawn if place[e[0]] == place[e[1]]])
    widths = _widths(rows, links, graph)
    return Layout(graph, rows, widths, _middles(rows, links, widths), levels)


def _widths(
    rows: Sequence[Sequence[Node]], links: Sequence[tuple[Node, Node]], graph: Graph
) -> dict[Node, float]:
    """Give everything its width: a box has room for its name, and for the ends of its edges."""
    above = Counter(high for _, high in links)
    below = Counter(low for low, _ in links)
    row_of = {node: number for number, row in enumerate(rows) for node in row}
    inside = Counter(p for edge in graph.drawn if row_of[edge[0]] == row_of[edge[1]] for p in edge)
    return {
        node: BEND
        if isinstance(node, Bend)
        else max(
            LETTER * len(label(node)) + 2 * PADDING,
            END * (max(above[node], below[node]) + inside[node] // 2 + 1),
        )
        for row in rows
        for node in row
    }


def _rows(graph: Graph) -> list[list[str]]:
    """Give the rows: a layer takes several where its packages import each other in order."""
    cyclic = set(graph.cyclic) | set(graph.against)
    rows: list[list[str]] = []
    for layer in graph.layers.layers:
        left = [package for package in graph.packages if package in layer.packages]
        inside = [e for e in graph.imports if e not in cyclic and set(e) <= set(left)]
        together = [set(e) for e in graph.cyclic if set(e) <= set(left)]
        while left:
            held = {b for a, b in inside if a in left}
            while grown := {p for pair in together if pair & held for p in pair} - held:
                held |= grown
            row = [package for package in left if package not in held] or left
            rows.append(row)
            left = [package for package in left if package not in row]
    return rows


def _sorted(
    rows: list[list[Node]], links: Sequence[tuple[Node, Node]], inside: Sequence[Edge]
) -> list[list[Node]]:
    """Sort each row after its neighbours until edges cross as little as was found."""
    above: dict[Node, list[Node]] = {}
    below: dict[Node, list[Node]] = {}
    for low, high in links:
        below.setdefault(low, []).append(high)
        above.setdefault(high, []).append(low)
    best, fewest = rows, _cost(rows, links, inside)
    for sweep in range(SWEEPS):
        rows = [list(row) for row in rows]
        down = sweep % 2 == 0
        numbers = range(1, len(rows)) if down else range(len(rows) - 2, -1, -1)
        for number in numbers:
            other = rows[number - 1 if down else number + 1]
            place = {node: (p + 0.5) / len(other) for p, node in enumerate(other)}
            neighbours = above if down else below
            old = {node: (p + 0.5) / len(rows[number]) for p, node in enumerate(rows[number])}
            wish = {
                node: statistics.mean([place[n] for n in neighbours.get(node, ())] or [old[node]])
                for node in rows[number]
            }
            rows[number].sort(key=wish.__getitem__)
            rows = _swapped(rows, number, links, inside)
        if (cost := _cost(rows, links, inside)) < fewest:
            best, fewest = rows, cost
    return best


def _swapped(
    rows: list[list[Node]], number: int, links: Sequence[tuple[Node, Node]], inside: Sequence[Edge]
) -> list[list[Node]]:
    """Swap neighbours in a row as long as that helps."""
    near = {node for row in rows[max(0, number - 1) : number + 2] for node in row}
    about = [link for link in links if link[0] in near and link[1] in near]
    cost = _cost(rows, about, inside)
    row = rows[number]
    for place in range(len(row) - 1):
        row[place], row[place + 1] = row[place + 1], row[place]
        if (swapped := _cost(rows, about, inside)) < cost:
            cost = swapped
        else:
            row[place], row[place + 1] = row[place + 1], row[place]
    return rows


def _cost(
    rows: Sequence[Sequence[Node]], links: Iterable[tuple[Node, Node]], inside: Sequence[Edge]
) -> float:
    """Count crossings; edges inside a row cost what they pass over."""
    where = {node: (number, p) for number, row in enumerate(rows) for p, node in enumerate(row)}
    between: dict[int, list[tuple[int, int]]] = {}
    for low, high in links:
        between.setdefault(where[low][0], []).append((where[low][1], where[high][1]))
    crossings = sum(
        (a - c) * (b - d) < 0
        for pairs in between.values()
        for number, (a, b) in enumerate(pairs)
        for c, d in pairs[:number]
    )
    return crossings + sum(abs(where[a][1] - where[b][1]) - 1 for a, b in inside)


def _middles(
    rows: Sequence[Sequence[Node]],
    links: Sequence[tuple[Node, Node]],
    widths: Mapping[Node, float],
) -> dict[Node, float]:
    """Place everything near its neighbours, so that long edges are straight."""
    near: dict[Node, list[tuple[Node, int]]] = {}
    for low, high in links:
        weight = STRAIGHT ** (isinstance(low, Bend) + isinstance(high, Bend))
        near.setdefault(low, []).append((high, weight))
        near.setdefault(high, []).append((low, weight))
    middles: dict[Node, float] = {}
    for row in rows:
        middles |= _spread_out(row, dict.fromkeys(row, (0.0, 1)), widths)
    for _ in range(SWEEPS):
        for row in (*rows, *rows[::-1]):
            wishes = {}
            for node in row:
                wanted = [(middles[n], weight) for n, weight in near.get(node, ())]
                wishes[node] = _mean(wanted or [(middles[node], 1)])
            middles |= _spread_out(row, wishes, widths)
    left = min(middle - widths[node] / 2 for node, middle in middles.items())
    return {node: middle - left for node, middle in middles.items()}


def _spread_out(
    row: Sequence[Node], wishes: Mapping[Node, tuple[float, int]], widths: Mapping[Node, float]
) -> dict[Node, float]:
    """Give the places nearest to the wishes at which nothing overlaps (pooling neighbours)."""
    offsets: dict[Node, float] = {}
    for number, node in enumerate(row):
        left = row[number - 1] if number else node
        apart = (widths[left] + widths[node]) / 2 + _gap(left, node)
        offsets[node] = offsets[left] + apart if number else 0.0
    blocks: list[list[tuple[float, int]]] = []  # of wishes less offsets: each block moves as one
    for node in row:
        wish, weight = wishes[node]
        blocks.append([(wish - offsets[node], weight)])
        while len(blocks) > 1 and _mean(blocks[-2])[0] > _mean(blocks[-1])[0]:
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    moved = [_mean(block)[0] for block in blocks for _ in block]
    return {node: move + offsets[node] for node, move in zip(row, moved, strict=True)}


def _mean(weighted: Sequence[tuple[float, int]]) -> tuple[float, int]:
    """Give the mean of weighted values, and their weight."""
    weight = sum(weight for _, weight in weighted)
    return sum(value * weight for value, weight in weighted) / weight, weight


def _gap(left: Node, right: Node) -> float:
    """Give the least distance between neighbours: bends may lie close."""
    return GAP / 3 if isinstance(left, Bend) or isinstance(right, Bend) else GAP
