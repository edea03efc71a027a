import zipfile
from pathlib import Path

from tests.repository.installing import run
from tests.repository.tree import FOLDERS, ROOT, python_files

# Imports every module of the package, and checks that each came from this environment.
IMPORT_ALL = """
import importlib, pathlib, pkgutil, sys
import perdure
for found in pkgutil.walk_packages(perdure.__path__, "perdure."):
    module = importlib.import_module(found.name)
    assert pathlib.Path(module.__file__).is_relative_to(sys.prefix), module.__file__
    print(found.name)
"""


def entries(wheel: Path) -> list[str]:
    """The files that a wheel holds."""
    with zipfile.ZipFile(wheel) as archive:
        return sorted(archive.namelist())


def shipped_modules() -> set[str]:
    """The files that must ship, as they lie in the package."""
    files = (path.relative_to(ROOT) for path in python_files())
    return {
        str(path if path.parts[0] == "perdure" else "perdure" / path)
        for path in files
        if path.parts[0] in FOLDERS
    }


def test_the_wheel_holds_one_package_and_nothing_else(wheel: Path) -> None:
    """What ships is perdure with its metadata: no tests, no tools, nothing of an earlier build."""
    tops = {entry.partition("/")[0] for entry in entries(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"perdure"}


def test_no_module_is_left_out_of_the_wheel(wheel: Path) -> None:
    """Packages are listed by name; one that was forgotten shows here and not at a user's."""
    assert {entry for entry in entries(wheel) if entry.endswith(".py")} == shipped_modules()


def test_a_wheel_from_the_source_distribution_is_the_same(
    wheel: Path, wheel_of_sdist: Path
) -> None:
    """In a source distribution there are no links: what they lead to must lie in their place."""
    assert entries(wheel_of_sdist) == entries(wheel)


def test_the_wheel_holds_types_and_licence(wheel: Path) -> None:
    """The package ships its one type marker, and the licence goes along."""
    found = entries(wheel)
    assert [entry for entry in found if entry.endswith("py.typed")] == ["perdure/py.typed"]
    assert any(entry.endswith(".dist-info/licenses/LICENSE") for entry in found)


def test_every_module_imports_from_another_directory(installed: Path, tmp_path: Path) -> None:
    """Installed from the wheel, every module imports, and none of them from the repository."""
    imported = run(installed, "-I", "-c", IMPORT_ALL, cwd=tmp_path).split()
    paths = {path.removesuffix(".py").removesuffix("/__init__") for path in shipped_modules()}
    assert {"perdure", *imported} == {path.replace("/", ".") for path in paths}


def test_the_installed_command_runs(installed: Path, tmp_path: Path) -> None:
    """The command that the wheel installs starts and knows its version."""
    assert run(installed.with_name("perdure"), "--version", cwd=tmp_path).startswith("perdure 0.")


def test_a_checkout_is_installed_as_it_lies(editable: Path, tmp_path: Path) -> None:
    """An editable install finds the folders through the links, with the command."""
    where = "import perdure.runtime.cli as c; print(c.__file__)"
    found = Path(run(editable, "-I", "-c", where, cwd=tmp_path).strip())
    assert found.parts[-4:-1] == ("perdure", "runtime", "cli")
    assert found.resolve().parts[-4:-1] != found.parts[-4:-1]
    assert run(editable.with_name("perdure"), "--version", cwd=tmp_path).startswith("perdure 0.")
