"""How processes are started: what the system lets us do, and what they get."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from perdure.eventlog import RealEnv
from perdure.runtime.plugins.manifest import read_manifest
from perdure.runtime.plugins.settings import SandboxMode
from perdure.runtime.process import sandbox_features
from perdure.runtime.process.control_groups import ControlGroups
from perdure.runtime.process.sandbox import Sandbox
from tests.repository.tree import ROOT
from tests.runtime.process.test_processes import example, lines, result, run, start
from tests.runtime.service import Service, real_service

OPEN = "for n in $(seq 0 99); do [ ! -e /proc/self/fd/$n ] || echo open $n; done"
PLAIN = f"""
exec 8<&$PERDURE_READ_FD 9>&$PERDURE_WRITE_FD
read -r start <&8
echo "$PERDURE_READ_FD $PERDURE_WRITE_FD"
echo '{{"say": "log", "text": "heard"}}' >&9
exec 8<&- 9>&-
{OPEN}
grep SigIgn /proc/self/status
env
echo '{{"say": "return", "value": null}}' >&4
"""


async def test_first_starts_wait_for_one_look_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop goes on meanwhile; those that start later need no look."""
    looked: list[int] = []
    may_end = threading.Event()

    def look(_wanted: sandbox_features.SandboxFeatures) -> str:
        looked.append(threading.get_ident())
        may_end.wait(10)
        return ""

    monkeypatch.setattr(sandbox_features, "_tried", look)
    monkeypatch.setattr(
        sandbox_features, "features", lru_cache(sandbox_features.features.__wrapped__)
    )
    async with example("python") as s:
        runs = [await start(s, "greet") for _ in range(3)]
        while {(await s.read(run_id))["status"] for run_id in runs} != {"running"}:
            await wait_all_tasks_blocked()
        await wait_all_tasks_blocked()
        may_end.set()
        for run_id in [*runs, await start(s, "greet")]:
            assert (await s.finished(run_id))["status"] == "succeeded"
    assert len(looked) == 1
    assert threading.get_ident() not in looked


@asynccontextmanager
async def script(folder: Path, text: str) -> AsyncIterator[Service]:
    """Run a node with a plugin that is a script for a plain shell."""
    (folder / "plain.sh").write_text(text)
    (folder / "plugin.toml").write_text(
        'id = "plain"\nversion = "1"\n[entries.go]\ncommand = ["/bin/sh", "plain.sh"]\n'
    )
    async with real_service({"plain": read_manifest(folder)}) as s:
        s.plugin_id = "plain"
        with trio.fail_after(30):
            yield s


async def test_the_script_in_the_documentation_runs(tmp_path: Path) -> None:
    """In whatever shell there is."""
    page = (ROOT / "docs" / "plugin-protocol.md").read_text("utf-8")
    async with script(tmp_path, page.partition("```sh\n")[2].partition("```")[0]) as s:
        end = await run(s, "go")
        assert (end["status"], await result(s, end)) == ("succeeded", "done")
        assert lines(s, end["run_id"]) == [("info", "this is a log line")]


@pytest.mark.parametrize("no_namespace", [False, True])
@pytest.mark.parametrize("taken", [False, True])
async def test_a_process_gets_two_descriptors_that_a_plain_shell_can_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_namespace: bool, taken: bool
) -> None:
    """They are 3 and 4, whatever the server has open; it gets nothing else, and no habits."""
    if no_namespace:
        monkeypatch.setattr(sandbox_features, "features", sandbox_features.SandboxFeatures)
    ours = [os.open(os.devnull, os.O_RDONLY) for _ in range(40 if taken else 0)]
    async with script(tmp_path, PLAIN) as s:
        end = await run(s, "go")
        said = [text for _, text in lines(s, end["run_id"])]
    for fd in ours:
        os.close(fd)
    assert end["status"] == "succeeded", (end["error"], said)
    assert "heard" in said
    assert "3 4" in said
    there = {text for text in said if text.startswith("open")} - {"open 10"}  # the script, in dash
    assert there == {f"open {number}" for number in range(5)}
    (ignored,) = [text.split()[1] for text in said if text.startswith("SigIgn")]
    assert int(ignored, 16) & (1 << 12 | 1 << 24) == 0  # SIGPIPE and SIGXFSZ
    assert not [text for text in said if text.startswith(("LC_CTYPE=", "PERDURE_GUARD"))]


@pytest.mark.needs("bash")
@pytest.mark.parametrize("given", [(3, 4, 5), (5, 3, 4), (4, 5, 3), (7, 3, 20), (10, 11, 4)])
def test_descriptors_do_not_get_in_each_others_way(tmp_path: Path, given: tuple[int, ...]) -> None:
    """Each goes where it belongs, wherever the server happens to have had them."""
    script = f"cat <&3; cat <&4; cat <&5; {OPEN}"
    moved = []
    for number, fd in enumerate(given):
        (tmp_path / str(number)).write_text(f"{number} ")
        moved.append(f"{fd}<{tmp_path / str(number)}")
    program = "import os, sys; from perdure.runtime.process.guard.descriptors import lower;"
    program += f"lower({list(given)}); os.execv('/bin/sh', sys.argv[1:])"
    starting = f'exec "$@" {" ".join(moved)}'
    said = subprocess.run(
        ["bash", "-c", starting, "bash", sys.executable, "-c", program, "sh", "-c", script],
        check=True,
        capture_output=True,
        text=True,
    )
    there = "".join(f"open {number}\n" for number in range(6))
    assert said.stdout == f"0 1 2 {there}"


async def test_a_script_without_a_first_line_is_one_for_the_shell(tmp_path: Path) -> None:
    """As it is when a shell starts it."""
    go = tmp_path / "go"
    go.write_text('read -r start <&3\necho \'{"say": "return", "value": "sh"}\' >&4\n')
    go.chmod(0o755)
    (tmp_path / "plugin.toml").write_text(
        'id = "plain"\nversion = "1"\n[entries.go]\ncommand = ["go"]\n'
    )
    async with real_service({"plain": read_manifest(tmp_path)}) as s:
        s.plugin_id = "plain"
        assert await result(s, await run(s, "go")) == "sh"


@pytest.mark.parametrize(
    ("mode", "found", "told"),
    [
        (
            "auto",
            sandbox_features.SandboxFeatures(trouble="no luck"),
            "(no luck); allow user namespaces",
        ),
        ("required", sandbox_features.SandboxFeatures(trouble="no luck"), "systemd: Delegate=yes"),
        ("off", sandbox_features.SandboxFeatures(), "The sandbox is off"),
    ],
)
async def test_a_server_says_at_its_start_what_is_not_enforced(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    mode: SandboxMode,
    found: sandbox_features.SandboxFeatures,
    told: str,
) -> None:
    """With how to change that; where all is enforced it says nothing."""
    monkeypatch.setattr(sandbox_features, "features", lambda: found)
    await Sandbox(mode).announce(RealEnv())
    assert told in caplog.text
    caplog.clear()
    groups = ControlGroups("/there", "/there", is_unified=True)
    rich = sandbox_features.SandboxFeatures(namespaces=1, network=True, groups=groups)
    monkeypatch.setattr(sandbox_features, "features", lambda: rich)
    await Sandbox("auto").announce(RealEnv())
    assert caplog.text == ""
