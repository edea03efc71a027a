"""The picture: bands for layers, boxes for packages, arrows for imports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape

from tools.imports.graph import Edge, Graph, When
from tools.imports.layout import Layout, Node, label, layout

BOX: Final = 34.0
BAND: Final = 14.0  # the border of a band around its boxes
SPACE: Final = 46.0  # the least between two rows
EACH: Final = 4.5  # and for each edge there, because many would lie flat
MOST: Final = 120.0
SIDE: Final = 178.0  # the names of layers
MARGIN: Final = 24.0
TOP: Final = 56.0
LEGEND: Final = 74.0
LEAST: Final = 760.0  # what the legend needs

COLOURS: Final = {"in order": "#64748b", "cycle": "#d97706", "against": "#dc2626"}
_STYLE: Final = """
text { font-family: system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif; fill: #1e293b }
.title { font-size: 17px; font-weight: 600 }
.layer { font-size: 13px; fill: #64748b }
.name { font-size: 14px; font-weight: 500; text-anchor: middle }
.legend { font-size: 12.5px; fill: #475569 }
.band { fill: #f1f5f9 }
.box { fill: #fff; stroke: #94a3b8; stroke-width: 1.2 }
path { fill: none }
"""


def svg(graph: Graph, title: str) -> str:
    """Draw a graph."""
    return "\n".join(_Picture(layout(graph), title).parts()) + "\n"


class _Picture:
    """A layout with its measures."""

    def __init__(self, placed: Layout, title: str) -> None:
        self._placed = placed
        self._graph = placed.graph
        self._title = title
        self._kinds = {
            **dict.fromkeys(self._graph.drawn, "in order"),
            **dict.fromkeys(self._graph.cyclic, "cycle"),
            **dict.fromkeys(self._graph.against, "against"),
        }
        self._row_of = placed.row_of
        right = max(middle + placed.widths[node] / 2 for node, middle in placed.middles.items())
        self._width = max(LEAST, SIDE + right + 2 * MARGIN)
        self._left = SIDE + (self._width - SIDE - right) / 2
        self._ys = self._heights()
        self._height = self._ys[-1] + BOX / 2 + BAND + LEGEND
        self._ends = self._end_points()

    def parts(self) -> Iterator[str]:
        """Give the elements, back to front."""
        size = f"{self._width:.0f} {self._height:.0f}"
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}"'
            f' width="{self._width:.0f}" height="{self._height:.0f}" role="img">'
        )
        yield f"<title>{escape(self._title)}</title>"
        yield f"<style>{_STYLE}</style>"
        yield "<defs>"
        for kind, colour in COLOURS.items():
            yield (
                f'<marker id="{kind.replace(" ", "-")}" viewBox="0 0 10 10" refX="9" refY="5"'
                ' markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">'
                f'<path d="M0,0.8 L10,5 L0,9.2 z" style="fill: {colour}"/></marker>'
            )
        yield "</defs>"
        yield f'<rect width="{self._width:.0f}" height="{self._height:.0f}" fill="#fff"/>'
        yield f'<text class="title" x="{MARGIN:.0f}" y="33">{escape(self._title)}</text>'
        yield from self._bands()
        for kind in COLOURS:  # what is wrong lies on top
            yield from (self._arrow(e, kind) for e in self._graph.drawn if self._kinds[e] == kind)
        yield from self._boxes()
        yield from self._legend()
        yield "</svg>"

    def _bands(self) -> Iterator[str]:
        levels = self._placed.levels
        for level in dict.fromkeys(levels):
            first = levels.index(level)
            count = levels.count(level)
            y = self._ys[first] - BOX / 2 - BAND
            height = self._ys[first + count - 1] + BOX / 2 + BAND - y
            yield (
                f'<rect class="band" x="{MARGIN / 2:.0f}" y="{y:.1f}"'
                f' width="{self._width - MARGIN:.0f}" height="{height:.1f}" rx="8"/>'
            )
            name = escape(self._graph.layers.layers[level].name)
            middle = y + height / 2 + 4.5
            yield f'<text class="layer" x="{MARGIN:.0f}" y="{middle:.1f}">{name}</text>'

    def _boxes(self) -> Iterator[str]:
        for package in self._graph.packages:
            x, y, wide = (
                self._x(package),
                self._y(self._row_of[package]),
                self._placed.widths[package],
            )
            yield (
                f'<rect class="box" x="{x - wide / 2:.1f}" y="{y - BOX / 2:.1f}"'
                f' width="{wide:.1f}" height="{BOX:.0f}" rx="6"/>'
            )
            yield f'<text class="name" x="{x:.1f}" y="{y + 5:.1f}">{escape(label(package))}</text>'

    def _arrow(self, edge: Edge, kind: str) -> str:
        begin, end = (self._row_of[package] for package in edge)
        path = self._beside(edge) if begin == end else self._through(edge)
        dashes = "" if self._graph.when(edge) is When.AT_ONCE else ' stroke-dasharray="5 4"'
        wide = 1.3 if kind == "in order" else 1.7
        return (
            f'<path d="{path}" stroke="{COLOURS[kind]}" stroke-width="{wide}"{dashes}'
            f' marker-end="url(#{kind.replace(" ", "-")})">'
            f"<title>{edge[0]} imports {edge[1]}</title></path>"
        )

    def _through(self, edge: Edge) -> str:
        """Give the path of an edge from row to row: straight through rows, curved between them."""
        first, *bends, last = self._placed.way(edge)
        down = 1 if self._row_of[last] > self._row_of[first] else -1
        x, y = self._ends[edge, first], self._y(self._row_of[first]) + down * BOX / 2
        path = f"M{x:.1f},{y:.1f}"
        for bend in bends:
            middle = self._y(self._row_of[bend])
            path += _curve(x, y, self._x(bend), middle - down * BOX / 2)
            x, y = self._x(bend), middle + down * BOX / 2
            path += f" V{y:.1f}"
        return path + _curve(
            x, y, self._ends[edge, last], self._y(self._row_of[last]) - down * BOX / 2
        )

    def _beside(self, edge: Edge) -> str:
        """Give the path of an edge inside a row: one way above the boxes, the other way below."""
        a, b = self._x(edge[0]), self._x(edge[1])
        y = self._y(self._row_of[edge[0]])
        right = 1 if b > a else -1
        row = list(self._placed.rows[self._row_of[edge[0]]])
        apart = abs(row.index(edge[0]) - row.index(edge[1]))
        if apart == 1 and edge[::-1] not in self._kinds:
            begin, end = (
                a + right * self._placed.widths[edge[0]] / 2,
                b - right * self._placed.widths[edge[1]] / 2,
            )
            return f"M{begin:.1f},{y:.1f} H{end:.1f}"
        begin, end = self._ends[edge, edge[0]], self._ends[edge, edge[1]]
        edge_y = y - right * BOX / 2
        top = edge_y - right * (8 + 8 * min(apart, 4))
        return (
            f"M{begin:.1f},{edge_y:.1f}"
            f" C{begin:.1f},{top:.1f} {end:.1f},{top:.1f} {end:.1f},{edge_y:.1f}"
        )

    def _end_points(self) -> dict[tuple[Edge, Node], float]:
        """Spread the ends of edges over the upper and the lower side of each box."""
        sides: dict[tuple[str, int], list[tuple[float, Edge]]] = {}
        for edge in self._graph.drawn:
            way = self._placed.way(edge)
            for package, other in ((edge[0], way[1]), (edge[1], way[-2])):
                rows = self._row_of[other] - self._row_of[package]
                side = (rows > 0) - (rows < 0)
                if not side:  # inside a row: to the right above, to the left below
                    side = -1 if self._x(edge[1]) > self._x(edge[0]) else 1
                sides.setdefault((package, side), []).append((self._x(other), edge))
        ends: dict[tuple[Edge, Node], float] = {}
        for (package, _), found in sides.items():
            room = self._placed.widths[package] - 20
            for number, (_, edge) in enumerate(sorted(found)):
                part = (number + 0.5) / len(found) - 0.5
                ends[edge, package] = self._x(package) + part * min(room, 22 * len(found))
        return ends

    def _legend(self) -> Iterator[str]:
        y = self._height - LEGEND + 22
        x = MARGIN
        for kind, text in _MEANINGS:
            colour = COLOURS[kind.partition(",")[0]]
            dashes = ' stroke-dasharray="5 4"' if kind.endswith("dashed") else ""
            marker = kind.partition(",")[0].replace(" ", "-")
            yield (
                f'<path d="M{x:.0f},{y - 4:.0f} h34" stroke="{colour}" stroke-width="1.6"{dashes}'
                f' marker-end="url(#{marker})"/>'
            )
            yield f'<text class="legend" x="{x + 42:.0f}" y="{y:.0f}">{text}</text>'
            x += 62 + 6.3 * len(text)
        yield f'<text class="legend" x="{MARGIN:.0f}" y="{y + 24:.0f}">{_NOTE}</text>'

    def _x(self, node: Node) -> float:
        return self._left + self._placed.middles[node]

    def _y(self, row: int) -> float:
        return self._ys[row]

    def _heights(self) -> list[float]:
        """Give the middle of each row, with more space where more edges are."""
        rows = range(len(self._placed.rows))
        edges = [sorted(self._row_of[package] for package in e) for e in self._graph.drawn]
        ys = [TOP + BAND + BOX / 2]
        for row in rows[1:]:
            passing = sum(low < row <= high for low, high in edges)
            inside = sum(low == high in (row - 1, row) for low, high in edges)
            ys.append(ys[-1] + BOX + min(MOST, SPACE + EACH * max(0, passing + inside - 4)))
        return ys


_MEANINGS: Final[Sequence[tuple[str, str]]] = (
    ("in order", "imports"),
    ("in order, dashed", "in functions or for types only"),
    ("cycle", "cycle inside a layer"),
    ("against", "against the order of layers"),
)
_NOTE: Final = (
    "All imports in the code. Grey arrows that follow from others are left out"
    " (a transitive reduction)."
    " Drawn by python -m tools.imports."
)


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    """Give a curve that begins and ends upright."""
    middle = (y + to_y) / 2
    return f" C{x:.1f},{middle:.1f} {to_x:.1f},{middle:.1f} {to_x:.1f},{to_y:.1f}"
