"""The lock files: complete for every Python that we name, and working on those that are here."""

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.repository.installing import build, copy_sources, run
from tests.repository.tree import ROOT

UV = Path(sys.executable).with_name("uv")
LOCKS = ("requirements.lock", "requirements-dev.lock")
_CLASSIFIER = "Programming Language :: Python :: 3."
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PYTHONS = tuple(
    each.removeprefix("Programming Language :: Python :: ")
    for each in _PROJECT["classifiers"]
    if each.startswith(_CLASSIFIER)
)

PLAIN = """
import platform
from perdure import SyncRunContext, entry, plugin

@plugin("plain")
class Plain:
    @entry
    def version(self, ctx: SyncRunContext) -> str:
        return platform.python_version().rpartition(".")[0]
"""


def resolved(lock: Path, version: str, into: Path) -> subprocess.CompletedProcess[str]:
    """What an installer makes of a lock under a Python; nothing is installed."""
    dry = ("pip", "install", "--dry-run", "--quiet", "--require-hashes", "--requirement", lock)
    return subprocess.run(
        (UV, *dry, "--python-version", version, "--target", into),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def interpreter(version: str) -> Path | None:
    """An interpreter of this machine that works: on the path, or beside the one that runs this."""
    named = f"python{version}"
    beside = Path(sys.base_prefix).parent.glob(f"{version}.*/bin/{named}")
    for found in (shutil.which(named), *beside):
        asked = (
            None
            if found is None
            else subprocess.run([found, "-V"], capture_output=True, check=False)
        )
        if asked is not None and asked.returncode == 0:
            return Path(asked.args[0])
    return None


def test_the_supported_pythons_are_named() -> None:
    """From the oldest that is allowed on, without a gap."""
    minors = [int(each.removeprefix("3.")) for each in PYTHONS]
    assert minors == list(range(11, 15))
    assert _PROJECT["requires-python"] == f">=3.{minors[0]}"


@pytest.mark.parametrize("version", PYTHONS)
@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_is_complete_for_each_python(lock: str, version: str, tmp_path: Path) -> None:
    """Every package that is needed there is pinned with a hash."""
    done = resolved(ROOT / lock, version, tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_lock_with_a_hole_is_noticed(tmp_path: Path) -> None:
    """A package that only one Python needs may not be missing."""
    lines = (ROOT / "requirements-dev.lock").read_text("utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("pyyaml-ft=="))
    end = next(i for i, line in enumerate(lines) if i > start and not line.startswith(" "))
    holed = tmp_path / "holed.lock"
    holed.write_text("\n".join(lines[:start] + lines[end:]), "utf-8")
    assert resolved(holed, "3.12", tmp_path / "3.12").returncode == 0
    assert resolved(holed, "3.13", tmp_path / "3.13").returncode != 0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this repository."""
    sources = copy_sources(tmp_path_factory.mktemp("sources"))
    return build("wheel", sources, tmp_path_factory.mktemp("wheel"))


@pytest.mark.parametrize("version", [each for each in PYTHONS if interpreter(each)])
def test_perdure_works_on_each_python_that_is_here(
    version: str, wheel: Path, tmp_path: Path
) -> None:
    """The runtime lock installs there, and a run succeeds, inline and in a process."""
    python = tmp_path / "bin" / "python"
    here = interpreter(version)
    assert here is not None
    run(here, "-m", "venv", "--without-pip", tmp_path, cwd=tmp_path)
    into = (UV, "pip", "install", "--quiet", "--python", python)
    run(*into, "--require-hashes", "--requirement", ROOT / "requirements.lock", cwd=tmp_path)
    run(*into, "--no-deps", wheel, cwd=tmp_path)
    (tmp_path / "plain.py").write_text(PLAIN, "utf-8")
    (tmp_path / "perdure.toml").write_text('modules = ["plain"]', "utf-8")
    perdure = tmp_path / "bin" / "perdure"
    for entry in ("demo.count", "plain.version"):
        assert "succeeded" in run(perdure, "run", entry, cwd=tmp_path)
    shown = run(perdure, "export", "--json", _last_run(perdure, tmp_path), cwd=tmp_path)
    assert json.loads(shown)["json"] == version


def _last_run(perdure: Path, cwd: Path) -> str:
    runs = json.loads(run(perdure, "runs", "--json", cwd=cwd))["runs"]
    return str(runs[0]["run_id"])
