from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from perdure.eventlog import MemoryStore
from perdure.eventlog.simulation import SimEnv
from perdure.runtime.kernel import decoding
from tests.eventlog.conftest import SteadyEnv
from tests.runtime.cli.terminal import Shell
from tests.runtime.plugins.reloading import Files


@pytest.fixture
def env() -> SteadyEnv:
    """A process in virtual time whose threads take little of it."""
    env = SteadyEnv()
    env.delay = 0.001
    return env


@pytest.fixture
def store() -> MemoryStore:
    """An empty store in memory."""
    return MemoryStore()


@pytest.fixture
def decoded_apart(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The messages that were decoded in a thread, as this list gets to know them."""
    found: list[object] = []
    run_sync = SimEnv.run_sync

    async def noted(self: SimEnv, fn: Any, *args: Any, limiter: trio.CapacityLimiter) -> Any:
        if limiter is decoding._THREADS:
            found.append(fn)
        return await run_sync(self, fn, *args, limiter=limiter)

    monkeypatch.setattr(SimEnv, "run_sync", noted)
    return found


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """The command line in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path)


@pytest.fixture
def plugins_on_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder for plugins; their modules are forgotten after the test."""
    yield tmp_path
    for name, module in sys.modules.copy().items():
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def plugin_folder(plugins_on_disk: Path) -> Files:
    """A plugin in a folder."""
    return Files(plugins_on_disk, "folder")


@pytest.fixture(params=["folder", "module"])
def plugin_files(
    request: pytest.FixtureRequest, plugins_on_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> Files:
    """A plugin in a folder, or in a module."""
    monkeypatch.syspath_prepend(str(plugins_on_disk / "modules"))
    monkeypatch.setenv("PYTHONPATH", str(plugins_on_disk / "modules"))
    return Files(plugins_on_disk, request.param)
