from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from textwrap import dedent

import pytest

from perdure.runtime.plugins import loading
from perdure.runtime.plugins.loading import LoadedPlugins, Problem, load_plugins
from perdure.runtime.plugins.manifest import read_manifest
from perdure.runtime.plugins.settings import PluginSettings

GOOD = """
from perdure import RunContext, entry, plugin

@plugin("mine", version="3")
class Mine:
    @entry
    async def go(self, ctx: RunContext) -> None:
        pass
"""


DECLARED = ("is not async", "Correct the declaration")


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder from which modules are imported; they are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def load(modules: Path, text: str, name: str = "some_plugin") -> LoadedPlugins:
    """Load a module with this text."""
    (modules / f"{name}.py").write_text(dedent(text), "utf-8")
    return load_plugins(PluginSettings(demo=False, modules=[name]))


def test_the_demo_is_loaded_unless_it_is_switched_off() -> None:
    """It ships with Perdure."""
    assert list(load_plugins(PluginSettings()).plugins) == ["demo"]
    assert load_plugins(PluginSettings(demo=False)).plugins == {}


def test_a_module_brings_its_plugins(modules: Path) -> None:
    """Those that it declares itself, not those that it imports."""
    loaded = load(modules, GOOD + "\nfrom perdure.demo import Demo\n")
    assert {p.id: p.version for p in loaded.plugins.values()} == {"mine": "3"}
    assert loaded.problems == []


def test_an_installed_package_brings_its_plugins(
    modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the entry-point group perdure.plugins."""
    (modules / "packaged.py").write_text(GOOD, "utf-8")
    brought = [
        EntryPoint("packaged", "packaged:Mine", loading.GROUP),
        EntryPoint("wrong", "packaged:Yours", loading.GROUP),
    ]
    monkeypatch.setattr(loading, "entry_points", lambda **_: brought)
    loaded = load_plugins(PluginSettings(demo=False))
    assert list(loaded.plugins) == ["mine"]
    (problem,) = loaded.problems
    assert "Yours in packaged declares no plugin" in str(problem)


@pytest.mark.parametrize(
    ("text", "line", "message", "remedy"),
    [
        ("\nimport nowhere_to_be_found", 2, "No module named 'nowhere", "Correct it"),
        ("\n\nx = = 1", 3, "SyntaxError", "Correct it"),
        ("x = 1\ny = 1 / 0", 2, "ZeroDivisionError", "Correct it"),
        (GOOD.replace("async ", "").replace("@entry", '@entry(where="inline")'), 4, *DECLARED),
        (GOOD.replace("    @entry\n", ""), 4, "has no @entry", "Correct the declaration"),
        ("x = 1", None, "some_plugin declares no plugin", "Decorate a class"),
    ],
)
def test_what_cannot_be_loaded_says_where_and_what_to_do(
    modules: Path, text: str, line: int | None, message: str, remedy: str
) -> None:
    """With file, line and remedy; everything else is loaded."""
    (modules / "good.py").write_text(GOOD, "utf-8")
    (modules / "some_plugin.py").write_text(text, "utf-8")
    loaded = load_plugins(PluginSettings(demo=False, modules=["some_plugin", "good"]))
    assert list(loaded.plugins) == ["mine"]
    (problem,) = loaded.problems
    assert problem.line == line
    assert line is None or problem.file == str(modules / "some_plugin.py")
    assert message in problem.message
    assert problem.remedy.startswith(remedy)


def test_a_module_that_does_not_exist_is_named(modules: Path) -> None:
    """It may not be installed, or be misspelt."""
    (problem,) = load_plugins(PluginSettings(demo=False, modules=["nowhere.plugin"])).problems
    assert str(problem) == (
        "module nowhere.plugin was not loaded: there is no module nowhere."
        " Install it, start in the directory it lies in, or correct the name."
    )


def test_an_id_belongs_to_one_plugin(modules: Path) -> None:
    """The first one keeps it."""
    (modules / "first.py").write_text(GOOD, "utf-8")
    (modules / "second.py").write_text(GOOD, "utf-8")
    loaded = load_plugins(PluginSettings(demo=False, modules=["first", "second"]))
    assert list(loaded.plugins) == ["mine"]
    (problem,) = loaded.problems
    assert "taken by module first" in str(problem)
    assert (problem.file, problem.line) == (str(modules / "second.py"), 4)


def test_an_id_of_a_folder_that_is_taken_has_a_place(tmp_path: Path) -> None:
    """The line of the manifest that names it."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "plugin.toml").write_text(f'version = "1"\nid = "x"\n{RUN}', "utf-8")
    loaded = load_plugins(PluginSettings(demo=False, plugins=[str(tmp_path)]))
    assert list(loaded.plugins) == ["x"]
    (problem,) = loaded.problems
    assert (problem.file, problem.line) == (str(tmp_path / "two" / "plugin.toml"), 2)


def test_the_bounds_of_an_integer_are_integers(tmp_path: Path) -> None:
    """However they are written, and also when one is zero."""
    (tmp_path / "plugin.toml").write_text(
        'id = "bounded"\nversion = "1"\n[entries.go]\ncommand = ["true"]\n[entries.go.args]\n'
        'n = { type = "integer", default = 3, minimum = 0, maximum = 7.5 }\n'
    )
    entry = read_manifest(tmp_path).entries["go"]
    assert (entry.check({"n": 0}), entry.check({"n": 7})) == ({"n": 0}, {"n": 7})
    for wrong in (-1, 8):
        with pytest.raises(ValueError, match="n"):
            entry.check({"n": wrong})


HEAD = 'id = "x"\nversion = "1"\n'
RUN = '[entries.go]\ncommand = ["true"]\n'


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("id = \n", 1, "Invalid value"),
        ('version = "1"\nid = "Bad 5/.."\n', 2, "id: it has letters, digits, _ and -"),
        ('id = "x"\n', 1, "missing required field `version`"),
        (f"{HEAD}timeuot = 5\n{RUN}", 3, "timeuot: there is no such key; there are id, version"),
        (f"{HEAD}limits = 5\n{RUN}", 3, "there is no such key; did you mean limit?"),
        (f'{HEAD}{RUN}\nwhere = "nowhere"\n', 6, "entries.go.where: Invalid enum value 'nowhere'"),
        (f'{HEAD}{RUN}where = "thread"\n', 5, "entries.go.where: an executable runs in a process"),
        (f"{HEAD}{RUN}timeout = inf\n", 5, "entries.go.timeout: Expected `float` <= "),
        (
            f'{HEAD}{RUN}[entries."a.b"]\ncommand = ["true"]\n',
            5,
            "the name of an entry has letters",
        ),
        (f"{HEAD}[entries.go]\n", 3, "no such entry in a class, and no command"),
        (f'{HEAD}[entries.go]\ncommand = ["./gone"]\n', 4, "entries.go.command: there is no file"),
        (f'{HEAD}[entries.go]\ncommand = ["data.txt"]\n', 4, "data.txt is no program: chmod +x"),
        (
            f'{HEAD}{RUN}[entries.go.args]\na-b = {{ type = "string" }}\n',
            6,
            "the name of an argument",
        ),
        (
            f'{HEAD}{RUN}args.n = {{ type = "integre" }}\n',
            5,
            "entries.go.args.n.type: Invalid enum",
        ),
        (f'{HEAD}{RUN}args.n = {{ type = "integer", default = "x" }}\n', 5, "args.n: its default"),
        (f'{HEAD}python = "gone:X"\n', 3, "python: there is no gone.py in the folder"),
        (f'{HEAD}python = "code:X"\n', 3, "python: there is no class 'X' in code.py"),
        (f'{HEAD}python = "code:Mine"\n{RUN}', 4, "the class has an entry of this name too"),
        (f'{HEAD}python = "code:Mine"\n[entries.gi]\n', 4, "entries.gi: there is no such entry"),
        (
            f'{HEAD}python = "code:Mine"\nentries.go.where = "thread"\n',
            4,
            "go.where: entry 'go' is async",
        ),
    ],
)
def test_a_manifest_is_wrong_on_a_line(
    plugins_on_disk: Path, text: str, line: int, message: str
) -> None:
    """The one with the mistake on it, however it is written."""
    (plugins_on_disk / "plugin.toml").write_text(text, "utf-8")
    (plugins_on_disk / "data.txt").write_text("data", "utf-8")
    (plugins_on_disk / "code.py").write_text(GOOD, "utf-8")
    loaded = load_plugins(PluginSettings(demo=False, plugins=[str(plugins_on_disk)]))
    assert loaded.plugins == {}
    (problem,) = loaded.problems
    assert (problem.file, problem.line) == (str(plugins_on_disk / "plugin.toml"), line)
    assert message in problem.message


def test_a_manifest_has_the_last_word_on_an_entry_of_its_class(plugins_on_disk: Path) -> None:
    """On where it runs, for how long, and whether it goes on after a crash."""
    (plugins_on_disk / "code.py").write_text(GOOD, "utf-8")
    said = 'where = "process"\ntimeout = 5\nresumes = false\ndescription = "goes"\n'
    text = f'{HEAD}network = false\npython = "code:Mine"\n[entries.go]\n{said}'
    (plugins_on_disk / "plugin.toml").write_text(text, "utf-8")
    entry = read_manifest(plugins_on_disk).entries["go"]
    assert (entry.where, entry.timeout, entry.resumes) == ("process", 5.0, False)
    assert entry.description == "goes"
    assert entry.program is not None
    assert (entry.program.home, entry.program.network) == ("code:Mine", False)


def test_folders_may_have_modules_of_the_same_name(plugins_on_disk: Path) -> None:
    """Each plugin imports its own."""
    tmp_path = plugins_on_disk
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        text = f'id = "{name}"\nversion = "1"\npython = "code:Mine"\n'
        (tmp_path / name / "plugin.toml").write_text(text, "utf-8")
        (tmp_path / name / "beside_it.py").write_text(f"WHAT = '{name}'\n", "utf-8")
        code = GOOD.replace("pass", "").replace("None:", "None: ...").rstrip()
        code = f"from beside_it import WHAT\n{code}\nMine.__doc__ = WHAT\n"
        (tmp_path / name / "code.py").write_text(code, "utf-8")
    loaded = load_plugins(PluginSettings(demo=False, plugins=[str(tmp_path)]))
    assert loaded.problems == []
    brought = {sys.modules[f"perdure_plugin_{name}.code"].WHAT for name in ("one", "two")}
    assert brought == {"one", "two"}


def test_a_problem_that_ends_with_a_question_has_one_mark() -> None:
    """It is told in sentences."""
    problem = Problem(source="x", message="did you mean command?", remedy="Correct it.")
    assert str(problem) == "x was not loaded: did you mean command? Correct it."
