from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tools.imports.__main__ import PICTURE, main
from tools.imports.graph import Graph, Import, UnplacedPackage, When
from tools.imports.layers import FILE, Layers
from tools.imports.layout import Bend, layout
from tools.imports.lines import Size, code_lines, moves, sizes, table
from tools.imports.mermaid import mermaid
from tools.imports.svg import COLOURS, svg
from tools.revision import ROOT

LAYERS = Layers.read(FILE.read_text("utf-8"))
SVG = "{http://www.w3.org/2000/svg}"


def graph(*edges: str) -> Graph:
    """The graph of such edges, each of one import."""
    pairs = (edge.split(" -> ") for edge in edges)
    return Graph.of_imports([Import(a, b, When.AT_ONCE) for a, b in pairs], LAYERS)


def written(root: Path, **sources: str) -> Path:
    """A root with such modules, named by their path with two underscores between its parts."""
    for name, source in sources.items():
        path = root.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(source)
    return root


@pytest.mark.parametrize(
    ("source", "when"),
    [
        ("import perdure.actors.run.core", When.AT_ONCE),
        ("from perdure.actors.run import core", When.AT_ONCE),
        ("from perdure.actors import run", When.AT_ONCE),
        ("from actors.run.core import Run", When.AT_ONCE),
        ("try:\n    import perdure.actors.run\nexcept ImportError: pass", When.AT_ONCE),
        ("class A:\n    import perdure.actors.run", When.AT_ONCE),
        ("def f():\n    from perdure.actors.run import core", When.IN_FUNCTION),
        ("async def f():\n    import perdure.actors.run", When.IN_FUNCTION),
        ("if TYPE_CHECKING:\n    import perdure.actors.run", When.FOR_TYPES),
        ("if typing.TYPE_CHECKING:\n    import perdure.actors.run", When.FOR_TYPES),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import perdure.actors.run", When.AT_ONCE),
    ],
)
def test_an_import_is_found_wherever_it_is(tmp_path: Path, source: str, when: When) -> None:
    """And it is known when it takes place; one package or several make no difference."""
    found = Graph.of(written(tmp_path, runtime__http__app=source), LAYERS)
    assert list(found.imports) == [("runtime.http", "actors.run")]
    assert found.when(("runtime.http", "actors.run")) == when


def test_relative_imports_are_found(tmp_path: Path) -> None:
    """They count from the module's own package."""
    source = "from ..runs import index\nfrom . import app\nfrom .app import x\n"
    root = written(tmp_path, runtime__http__page=source, runtime__http__app="x = 1")
    assert list(Graph.of(root, LAYERS).imports) == [("runtime.http", "runtime.runs")]


def test_a_link_to_a_folder_is_not_read_twice(tmp_path: Path) -> None:
    """A module is one by whichever name it is imported."""
    root = written(
        tmp_path, perdure__demo="import perdure.runtime.plugins", runtime__plugins__x="pass"
    )
    (root / "perdure" / "runtime").symlink_to("../runtime")
    (found,) = Graph.of(root, LAYERS).imports.values()
    assert found == (Import("perdure.demo", "perdure.runtime.plugins", When.AT_ONCE),)


def test_the_strongest_import_of_an_edge_counts() -> None:
    """An edge is dashed only if nothing is imported at once."""
    imports = [Import("runtime.http.a", "actors.b", when) for when in When]
    assert Graph.of_imports(imports, LAYERS).when(("runtime.http", "actors")) is When.AT_ONCE


def test_a_package_without_a_layer_is_refused(tmp_path: Path) -> None:
    """Somebody has to say where it belongs; the message says where to write it."""
    with pytest.raises(UnplacedPackage, match=r"runtime\.strange: in no layer of tools/imports"):
        Graph.of(written(tmp_path, runtime__strange__thing="pass"), LAYERS)


@pytest.mark.parametrize(
    ("edge", "against"),
    [
        ("runtime.http -> runtime.kernel", False),
        ("runtime.kernel -> runtime.http", True),
        ("runtime.execution -> runtime.blobs", False),
        ("runtime.http -> runtime.websocket", True),  # surfaces do not know each other
        ("runtime.sessions -> runtime.runs", False),  # features know those before them
        ("runtime.runs -> runtime.sessions", True),
        ("actors.run -> actors", False),
        ("actors -> actors.run", True),
        ("eventlog -> perdure", True),
    ],
)
def test_the_order_of_layers_decides_what_goes_against_it(edge: str, *, against: bool) -> None:
    """Upwards always; inside a layer as the layer says."""
    assert bool(graph(edge).against) == against


def test_the_contracts_of_import_linter_agree_with_the_layers() -> None:
    """What may not be imported there goes against the order here."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = pyproject["tool"]["importlinter"]["contracts"]
    pairs = [
        (LAYERS.package_of(low), LAYERS.package_of(high))
        for contract in contracts
        if contract["type"] == "layers"
        for place, layer in enumerate(contract["layers"])
        for above in contract["layers"][:place]
        for low in re.split(r"\s*[|:]\s*", layer.strip("()"))
        for high in re.split(r"\s*[|:]\s*", above.strip("()"))
    ]
    assert pairs
    assert [
        (low, high)
        for low, high in pairs
        if low and high and low != high and not LAYERS.forbids(low, high)
    ] == []


def test_edges_that_follow_from_others_are_not_drawn() -> None:
    """Those against the order and those of cycles always are."""
    found = graph(
        "runtime.http -> runtime.runs",
        "runtime.http -> runtime.kernel",  # follows
        "runtime.runs -> runtime.kernel",
        "runtime.kernel -> runtime.http",
        "runtime.blobs -> runtime.plugins",
        "runtime.plugins -> runtime.blobs",
    )
    assert found.against == [("runtime.kernel", "runtime.http")]
    assert found.cyclic == [
        ("runtime.blobs", "runtime.plugins"),
        ("runtime.plugins", "runtime.blobs"),
    ]
    assert set(found.imports) - set(found.drawn) == {("runtime.http", "runtime.kernel")}


DENSE = (
    "perdure -> eventlog",
    "runtime.cli -> runtime.blobs",
    "runtime.server -> runtime.http",
    "runtime.server -> runtime.websocket",
    "runtime.http -> runtime.websocket",
    "runtime.http -> runtime.kernel",
    "runtime.blobs -> runtime.plugins",
    "runtime.plugins -> runtime.blobs",
    "runtime.kernel -> runtime.server",
    "runtime.secrets -> runtime.blobs",
)


def test_nothing_overlaps() -> None:
    """In each row boxes and the edges that pass keep their distance, in their order."""
    placed = layout(graph(*DENSE))
    assert any(isinstance(node, Bend) for row in placed.rows for node in row)
    for row in placed.rows:
        for left, right in pairwise(row):
            room = placed.middles[right] - placed.middles[left]
            assert room > (placed.widths[left] + placed.widths[right]) / 2


def test_rows_follow_the_layers() -> None:
    """Those further up are never below; inside a layer, who imports is above."""
    placed = layout(graph(*DENSE))
    assert list(placed.levels) == sorted(placed.levels)
    assert placed.row_of["runtime.secrets"] < placed.row_of["runtime.blobs"]
    assert placed.row_of["runtime.plugins"] == placed.row_of["runtime.blobs"]


def test_the_picture_is_well_formed_and_holds_everything() -> None:
    """A box for each package, an arrow in its colour for each edge, a name for each layer."""
    drawn = graph(*DENSE)
    root = ET.fromstring(svg(drawn, "a < b"))  # noqa: S314 - what we have just drawn
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"perdure", "http", "a < b", "surfaces", "services"} <= set(texts)
    strokes = {}
    for path in root.iter(f"{SVG}path"):
        if (title := path.find(f"{SVG}title")) is not None:
            strokes[title.text] = path.get("stroke")
    assert len(strokes) == len(drawn.drawn)
    assert strokes["runtime.kernel imports runtime.server"] == COLOURS["against"]
    assert strokes["runtime.plugins imports runtime.blobs"] == COLOURS["cycle"]
    assert strokes["runtime.server imports runtime.http"] == COLOURS["in order"]
    box = [float(number) for number in root.attrib["viewBox"].split()]
    places = [(float(e.attrib["x"]), float(e.attrib["y"])) for e in root.iter(f"{SVG}text")]
    assert all(0 < x < box[2] and 0 < y < box[3] for x, y in places)


def test_mermaid_has_the_same_edges() -> None:
    """Layers as boxes, weak edges dotted, wrong ones red."""
    imports = [
        Import("runtime.http.a", "runtime.kernel.b", When.FOR_TYPES),
        Import("runtime.kernel.b", "runtime.cli.c", When.AT_ONCE),
    ]
    lines = mermaid(Graph.of_imports(imports, LAYERS)).splitlines()
    assert lines[:2] == ["```mermaid", "graph TD"]
    assert '  subgraph layer_surfaces["surfaces"]' in lines
    assert "  runtime_http -.-> runtime_kernel" in lines
    assert "  runtime_kernel --> runtime_cli" in lines
    assert "  linkStyle 1 stroke:#dc2626,stroke-width:2px" in lines
    assert lines[-1] == "```"


class TestTheCommand:
    """`python -m tools.imports`."""

    def test_another_revision_is_drawn_and_what_is_wrong_is_listed(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The picture goes into a file, Mermaid and the lists to standard output."""
        output = tmp_path / "there" / "picture.svg"
        assert main(["--revision", "HEAD", "--output", str(output)]) == 0
        ET.fromstring(output.read_text("utf-8"))  # noqa: S314 - as above
        printed = capsys.readouterr().out
        assert printed.startswith("```mermaid\n")
        assert "Against the order of layers: " in printed
        assert "Cycles inside a layer: " in printed

    def test_a_check_fails_if_the_picture_differs(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It writes nothing, neither where there is none nor over an old one."""
        root = written(tmp_path / "root", runtime__cli__program="import perdure.runtime.runs")
        monkeypatch.setattr("tools.imports.__main__.ROOT", root)
        output = tmp_path / "picture.svg"
        check = ["--check", "--output", str(output)]
        assert main(check) == 1
        assert not output.exists()
        assert main(check[1:]) == 0
        assert main(check) == 0
        output.write_text(output.read_text().replace("cli", "clio"))
        assert main(check) == 1
        assert "clio" in output.read_text()

    def test_a_picture_does_not_depend_on_the_process(self, tmp_path: Path) -> None:
        """Another seed for hashes, the same picture: or a check would fail by chance."""
        pictures = []
        for seed in ("1", "77"):
            output = tmp_path / f"{seed}.svg"
            command = [sys.executable, "-m", "tools.imports", "--output", str(output)]
            env = {**os.environ, "PYTHONHASHSEED": seed}
            subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True)
            pictures.append(output.read_text())
        assert pictures[0] == pictures[1]

    def test_an_unknown_revision_is_refused(self, capsys: pytest.CaptureFixture[str]) -> None:
        """With what git says."""
        assert main(["--revision", "no-such-revision"]) == 2
        assert "no-such-revision" in capsys.readouterr().err

    def test_lines_of_two_revisions_stand_beside_each_other(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Each package has a row, and all have one."""
        assert main(["--lines", "--against", "HEAD"]) == 0
        rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
        names = [row[0] for row in rows]
        assert {"| `perdure`", "| `actors.run`", "| `eventlog`", "| all"} <= set(names)
        assert {len(row) for row in rows if row[0].startswith("| `")} == {7}


def test_the_committed_picture_is_that_of_the_code() -> None:
    """Whoever changes which package imports which draws it again: `python -m tools.imports`."""
    assert main(["--check", "--output", str(PICTURE)]) == 0


def test_only_lines_with_code_are_counted() -> None:
    """No comments, no blank lines, no docstrings; a text that is a value is code."""
    source = '''\
"""A module.

Of two paragraphs.
"""

import os  # why


class A:
    """A class."""

    text = """
    a value
    """


# a comment
async def f():
    """A function."""
    return (
        1
    )
'''
    assert code_lines(source) == 9


def test_sizes_are_of_packages(tmp_path: Path) -> None:
    """A folder and the first folder in it; what lies deeper belongs to that."""
    root = written(tmp_path, runtime__runs__commands__show="x = 1\n", runtime__backup="x = 1\n\n")
    assert sizes(root) == {"runtime": Size(2, 2, 1), "runtime.runs": Size(2, 1, 1)}


def test_a_package_that_came_or_went_has_an_empty_place() -> None:
    """Zero would say that it is there and empty."""
    rows = table({"runtime.runs": Size(1, 2, 3)}, {"runtime.lists": Size(4, 5, 1006)}).splitlines()
    assert rows[2:] == [
        "| `runtime.lists` | 4 |  | 5 |  | 1,006 |  |",
        "| `runtime.runs` |  | 1 |  | 2 |  | 3 |",
        "| all | 4 | 1 | 5 | 2 | 1,006 | 3 |",
    ]


def test_moves_are_counted_by_package() -> None:
    """Renames inside a package are no moves."""
    renames = [
        ("runtime/lists/a.py", "runtime/runs/a.py"),
        ("runtime/lists/b.py", "runtime/runs/commands/c.py"),
        ("runtime/runs/d.py", "runtime/runs/e.py"),
        ("runtime/node.py", "runtime/kernel/node.py"),
    ]
    assert moves(renames).splitlines()[2:] == [
        "| `runtime` | `runtime.kernel` | 1 |",
        "| `runtime.lists` | `runtime.runs` | 2 |",
    ]
