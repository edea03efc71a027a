"""The graph as a Mermaid block for Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from tools.imports.graph import Graph, When
from tools.imports.layout import label


def mermaid(graph: Graph) -> str:
    """Give the block: a box for each layer, and the edges that do not follow from others."""
    return "\n".join(["```mermaid", "graph TD", *_body(graph), "```"]) + "\n"


def _body(graph: Graph) -> Iterator[str]:
    for layer in graph.layers.layers:
        packages = [package for package in graph.packages if package in layer.packages]
        if packages:
            yield f'  subgraph {_id("layer." + layer.name)}["{layer.name}"]'
            yield from (f'    {_id(package)}["{label(package)}"]' for package in packages)
            yield "  end"
    colours = dict.fromkeys(graph.cyclic, "#d97706") | dict.fromkeys(graph.against, "#dc2626")
    for edge in graph.drawn:
        arrow = "-->" if graph.when(edge) is When.AT_ONCE else "-.->"
        yield f"  {_id(edge[0])} {arrow} {_id(edge[1])}"
    for number, edge in enumerate(graph.drawn):
        if edge in colours:
            yield f"  linkStyle {number} stroke:{colours[edge]},stroke-width:2px"


def _id(name: str) -> str:
    """Give a name that Mermaid takes for one: letters and underscores."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)
