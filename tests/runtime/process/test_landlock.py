"""What a process cannot reach where it can have no namespaces, but Landlock."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from perdure.runtime.plugins.manifest import read_manifest
from perdure.runtime.process import sandbox_features
from perdure.runtime.process.guard import landlock
from perdure.runtime.process.sandbox import Sandbox
from perdure.runtime.process.sandbox_features import SandboxFeatures
from tests.runtime.process.escape_attempts import SHOWN
from tests.runtime.process.test_escapes import escaping, facts, outcomes
from tests.runtime.process.test_processes import example, result, run
from tests.runtime.service import real_service

FILES = SandboxFeatures(landlock=True)
TROUBLE = sandbox_features._tried(FILES)
STILL_REACHED = {  # what only namespaces take away
    "be_root_in_a_user_namespace",
    "connect_to_a_socket_in_a_folder",
    "connect_to_the_loopback",
    "list_the_data_directory",  # names, and nothing else
    "see_the_server",
}
BY_LATER_KERNELS = {"connect_to_a_socket_without_a_file", "signal_the_server"}

pytestmark = pytest.mark.skipif(bool(TROUBLE), reason=f"no Landlock here: {TROUBLE}")


@pytest.fixture(autouse=True)
def _no_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the system offer nothing else."""
    monkeypatch.setattr(sandbox_features, "features", lambda: FILES)


async def test_files_memory_and_descriptors_of_the_server_are_out_of_reach(tmp_path: Path) -> None:
    """It sees what there is, and opens only its own; later kernels keep signals from it too."""
    beyond = STILL_REACHED if landlock.version() >= 6 else STILL_REACHED | BY_LATER_KERNELS
    with facts(tmp_path) as known:
        async with escaping("auto", known[0]) as s:
            reached = await outcomes(s, sorted(SHOWN - beyond), known)
    assert len(reached) >= 15
    assert {name: what for name, what in reached.items() if "reached" in what} == {}


async def test_a_process_writes_into_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is its home too, and is gone with its guard; what killed guards have left goes first."""
    left = tmp_path / "perdure-scratch-4194305"  # more than any process has
    left.mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    async with escaping("auto") as s:
        assert await result(s, await run(s, "keeps_notes", path="note")) == ["note"]
        (folder,) = tmp_path.iterdir()
        assert folder != left
        assert (folder / "note").read_text() == "note"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("language", ["python", "shell"])
async def test_examples_run_so_as_well(language: str) -> None:
    """What they need is theirs."""
    async with example(language) as s:
        assert (await run(s, "greet"))["status"] == "succeeded"


async def test_much_may_lie_beside_what_is_hidden(tmp_path: Path) -> None:
    """Its names are more than a socket holds; the log among them stays closed."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "log.db").touch()
    for number in range(3000):
        (tmp_path / f"{number:0120}").touch()
    (tmp_path / "go.sh").write_text(
        "read -r start <&3\ncat data/log.db && seen=1 || seen=0\n"
        'echo \'{"say": "return", "value": \'$seen\'}\' >&4\n'
    )
    (tmp_path / "plugin.toml").write_text(
        'id = "full"\nversion = "1"\n[entries.go]\ncommand = ["sh", "go.sh"]\n'
    )
    closed = Sandbox(hidden=[tmp_path / "data"])
    async with real_service({"full": read_manifest(tmp_path)}, sandbox=closed) as s:
        s.plugin_id = "full"
        with trio.fail_after(30):
            assert await result(s, await run(s, "go")) == 0
