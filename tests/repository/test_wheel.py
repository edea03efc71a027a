import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.repository.tree import PACKAGES, ROOT, name, python_files

SOURCES = ("pyproject.toml", "README.md", "LICENSE", *PACKAGES, "tests", "tools")

# Imports every module of every package, and checks that each came from this environment.
IMPORT_ALL = """
import importlib, pathlib, pkgutil, sys
for package in sys.argv[1:]:
    top = importlib.import_module(package)
    found = [m.name for m in pkgutil.walk_packages(top.__path__, package + ".")]
    for name in (package, *found):
        module = importlib.import_module(name)
        assert pathlib.Path(module.__file__).is_relative_to(sys.prefix), module.__file__
    print(package)
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command without this suite's Python settings; its output, or a failure showing it."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources so that no earlier build can leak into it."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    skip = shutil.ignore_patterns("__pycache__")
    for entry in SOURCES:
        if (ROOT / entry).is_dir():
            shutil.copytree(ROOT / entry, source / entry, ignore=skip)
        else:
            shutil.copy(ROOT / entry, source / entry)
    run(
        *(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source),
        cwd=out,
    )
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean environment holding the wheel; its dependencies are borrowed from this suite's.

    The .pth line puts our site-packages behind the new ones. It does not run the .pth files found
    there, so the editable install of this repository stays out of sight.
    """
    home = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    python = home / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel, cwd=home)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


def test_the_wheel_holds_the_four_packages_and_nothing_else(wheel: Path) -> None:
    """What ships is the four packages with their metadata: no tests, no tools."""
    with zipfile.ZipFile(wheel) as archive:
        tops = {entry.partition("/")[0] for entry in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)


def test_no_module_is_left_out_of_the_wheel(wheel: Path) -> None:
    """Packages are listed by name; one that was forgotten shows here and not at a user's."""
    with zipfile.ZipFile(wheel) as archive:
        shipped = {entry for entry in archive.namelist() if entry.endswith(".py")}
    assert shipped == {
        name(path) for path in python_files() if path.relative_to(ROOT).parts[0] in PACKAGES
    }


def test_the_wheel_holds_types_and_licence(wheel: Path) -> None:
    """Each package ships its type marker, and the licence goes along."""
    with zipfile.ZipFile(wheel) as archive:
        entries = archive.namelist()
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(entries)
    assert any(entry.endswith(".dist-info/licenses/LICENSE") for entry in entries)


def test_every_module_imports_from_another_directory(environment: Path, tmp_path: Path) -> None:
    """Installed from the wheel, every module imports, and none of them from the repository."""
    python = environment / "bin" / "python"
    assert run(python, "-I", "-c", IMPORT_ALL, *PACKAGES, cwd=tmp_path).split() == [*PACKAGES]


def test_the_installed_command_runs(environment: Path, tmp_path: Path) -> None:
    """The command that the wheel installs starts and knows its version."""
    command = environment / "bin" / "perdure"
    assert run(command, "--version", cwd=tmp_path).startswith("perdure 0.")
