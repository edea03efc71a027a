"""Perdure built and installed as other people get it."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.repository.tree import FOLDERS, ROOT

SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", *FOLDERS, "tests", "tools")
SITE = Path(sysconfig.get_path("purelib"))


def run(*command: str | Path, cwd: Path, code: int = 0, **more: str) -> str:
    """Run a command without the settings of this suite; its output, or a failure showing it."""
    ours = ("PYTHON", "PERDURE_")
    env = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    done = subprocess.run(
        command, cwd=cwd, env=env | more, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def copy_sources(into: Path) -> Path:
    """Copy what a build needs, links as links, and what it must not take along."""
    for entry in SOURCES:
        if (ROOT / entry).is_dir():
            skip = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / entry, into / entry, symlinks=True, ignore=skip)
        else:
            shutil.copy(ROOT / entry, into / entry)
    return into


def build(kind: str, source: Path, into: Path) -> Path:
    """Build a ``wheel`` or an ``sdist``."""
    run(
        *(sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", into, source),
        cwd=into,
    )
    (built,) = into.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


def environment(home: Path, *what: str | Path) -> Path:
    """Make a clean environment, have pip install something, and give its Python.

    Dependencies are borrowed from this suite's environment: a .pth line puts our site-packages
    behind the new ones. It does not run the .pth files found there, so the editable install of this
    repository stays out of sight. pip must not see our packages, for perdure is among them; it gets
    setuptools, with which it builds an editable install, on a path of its own.
    """
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    python = home / "bin" / "python"
    tools = home / "tools"
    tools.mkdir()
    for found in (*SITE.glob("setuptools*"), SITE / "_distutils_hack"):
        (tools / found.name).symlink_to(found)
    run(
        *(sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"),
        *("install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", *what),
        cwd=home,
        PYTHONPATH=str(tools),
    )
    (site,) = home.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(f"{SITE}\n", "utf-8")
    return python
