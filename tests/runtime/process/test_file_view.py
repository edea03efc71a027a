"""Which files a process is shown, wherever the interpreter, the plugin and the log are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from perdure.runtime.plugins.plugin import Program
from perdure.runtime.process.file_view import FileView, Missing, view_of, without_hiding

PYTHON = [sys.executable]


def how(view: FileView, path: Path | str) -> str:
    """Tell how a place is shown: as the nearest one above it is."""
    shown = {place: kind for kind, place in view.places}
    real = Path(os.path.realpath(path))
    return next((shown[str(at)] for at in (real, *real.parents) if str(at) in shown), "absent")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Give a folder with a plugin, a log and more."""
    for name in ("plugin", "data", "other", "cache"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_a_process_sees_its_interpreter_its_folder_and_nothing_else(work: Path) -> None:
    """Also what can be imported; not the system's keys, other homes or services."""
    program = Program(home="m:C", folder=str(work / "plugin"))
    view = view_of(program, PYTHON, [work / "data"])
    for path in (sys.executable, os.__file__, pytest.__file__, __file__, work / "plugin"):
        assert how(view, path) == "read"
    for path in ("/etc/shadow", "/etc/ssl/private", "/var", "/home", "/run", "/sys", "/boot"):
        assert how(view, path) == "absent"
    assert how(view, work / "other") == how(view, "/tmp") == "scratch"  # noqa: S108 - not what is there
    assert ("hidden", str(work / "data")) in view.places


def test_of_the_working_directory_only_modules_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is on the path where a plugin's module lies there; keys and settings lie there too."""
    (tmp_path / "package").mkdir()
    for name in ("module.py", "package/__init__.py", ".env", "key.pem"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("perdure.runtime.process.file_view.SCRATCH", ())
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    view = view_of(Program(home="m:C"), PYTHON, ())
    shown = {
        name: how(view, tmp_path / name) for name in ("module.py", "package", ".env", "key.pem")
    }
    assert shown == {"module.py": "read", "package": "read", ".env": "absent", "key.pem": "absent"}


def test_parents_come_first_and_what_is_more_precise_wins(work: Path) -> None:
    """A log in the plugin's folder is hidden; a plugin inside of the data directory is shown."""
    inside = work / "data" / "plugin"
    inside.mkdir()
    view = view_of(
        Program(folder=str(work), writes=(str(work / "cache"),)), ["/bin/sh"], [work / "data"]
    )
    paths = [Path(path) for _, path in view.places]
    assert all(path.parent not in paths[number:] for number, path in enumerate(paths))
    assert how(view, work) == "read"
    assert how(view, work / "cache") == "write"
    assert how(view, work / "data" / "log.db") == "hidden"
    within = view_of(Program(folder=str(inside)), ["/bin/sh"], [work / "data"])
    assert (how(within, inside), how(within, work / "data")) == ("read", "hidden")


def test_links_lead_to_where_things_are(work: Path) -> None:
    """A name that is a link is one inside too, to the same place."""
    link = work / "link"
    link.symlink_to(work / "plugin")
    view = view_of(Program(folder=str(link)), ["/bin/sh"], ())
    assert (str(link), str(work / "plugin")) in view.links
    assert how(view, work / "plugin") == "read"


def test_a_program_elsewhere_comes_with_its_libraries(work: Path) -> None:
    """Those beside the folder that it is in, and no more."""
    for name in ("bin", "lib", "secrets"):
        (work / "other" / name).mkdir()
    program = work / "other" / "bin" / "tool"
    program.touch()
    view = view_of(Program(), [str(program)], ())
    assert how(view, program) == how(view, work / "other" / "lib") == "read"
    assert how(view, work / "other" / "secrets") != "read"


def test_a_home_on_the_path_of_modules_is_not_shown_as_a_whole(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody works there: modules and packages can be imported, and nothing else is seen."""
    monkeypatch.setenv("HOME", str(work))
    monkeypatch.syspath_prepend(str(work))
    (work / "module.py").touch()
    (work / "plugin" / "__init__.py").touch()
    view = view_of(Program(home="module:C"), PYTHON, ())
    assert how(view, work / "module.py") == how(view, work / "plugin" / "x.py") == "read"
    assert how(view, work / ".ssh") == how(view, work / "other") == "scratch"


def test_where_nothing_can_be_hidden_what_lies_beside_it_is_named(work: Path) -> None:
    """Folders on the way have their names shown; links are left out, they lead elsewhere."""
    (work / "plugin" / "data").mkdir()
    (work / "plugin" / "code.py").touch()
    (work / "plugin" / "link").symlink_to("/etc")
    view = view_of(Program(folder=str(work)), ["/bin/sh"], [work / "plugin" / "data"])
    ours = {
        path.removeprefix(str(work)): kind
        for kind, path in without_hiding(view)
        if path.startswith(str(work))
    }
    assert ours == {
        "": "list",
        "/cache": "read",
        "/data": "read",
        "/other": "read",
        "/plugin": "list",
        "/plugin/code.py": "read",
    }


def test_links_that_a_plugin_has_made_lead_nowhere(work: Path) -> None:
    """Inside of a place that it may write everything is its own work."""
    (work / "cache" / "models").symlink_to("/etc")
    (work / "link").symlink_to(work / "cache")
    program = Program(
        reads=(str(work / "cache" / "models"), str(work / "link" / "models")),
        writes=(str(work / "cache"), str(work / "cache" / "models")),
    )
    view = view_of(program, ["/bin/sh"], ())
    assert ("write", str(work / "cache")) in view.places
    assert "/etc" not in [path for _, path in view.places]


@pytest.mark.parametrize("writes", ["plugin", "."])
def test_a_plugin_cannot_change_itself(work: Path, writes: str) -> None:
    """It could ask for more the next time."""
    program = Program(folder=str(work / "plugin"), writes=(str(work / writes),))
    with pytest.raises(Missing, match="holds the plugin itself"):
        view_of(program, ["/bin/sh"], ())


def test_a_plugin_in_the_data_directory_itself_is_refused(work: Path) -> None:
    """It could not be shown without the log."""
    with pytest.raises(Missing, match="keep them apart"):
        view_of(Program(folder=str(work)), ["/bin/sh"], [work])
