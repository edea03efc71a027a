"""Builds and installs of Perdure, each made once, when a test asks for it."""

import sysconfig
import tarfile
from pathlib import Path

import pytest

from tests.repository.installing import build, copy_sources, environment

# What an earlier build may have left: of the installed package, and of one that was killed.
STALE = (
    "build/lib/old_package/__init__.py",
    "build/lib/perdure/old_module.py",
    f"build/bdist.{sysconfig.get_platform()}/wheel/older_package/__init__.py",
)


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository."""
    return copy_sources(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="session")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built where earlier builds have left something."""
    for name in STALE:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).touch()
    return build("wheel", source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def wheel_of_sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is built from a source distribution: what pip does with one."""
    sdist = build("sdist", source, tmp_path_factory.mktemp("sdist"))
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (top,) = unpacked.iterdir()
    return build("wheel", top, tmp_path_factory.mktemp("wheel-of-sdist"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment in which the wheel is installed."""
    return environment(tmp_path_factory.mktemp("installed"), wheel)


@pytest.fixture(scope="session")
def editable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that uses a copy of the repository where it lies."""
    source = copy_sources(tmp_path_factory.mktemp("checkout"))
    return environment(tmp_path_factory.mktemp("editable"), "--editable", source)
