"""What a process cannot reach: attempts to get out of the sandbox, and to take too much."""

from __future__ import annotations

import os
import resource
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from perdure.runtime.plugins.manifest import read_manifest
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.plugins.settings import SandboxMode
from perdure.runtime.process import pool, sandbox_features
from perdure.runtime.process.control_groups import ControlGroups
from perdure.runtime.process.guard.order import NEW_USER
from perdure.runtime.process.sandbox import Sandbox
from perdure.runtime.process.sandbox_features import EVERYTHING, SandboxFeatures
from tests.runtime.process.escape_attempts import ATTEMPTS, CANARY, HERE, SHOWN
from tests.runtime.process.escape_plugin import Escape
from tests.runtime.process.test_hostile import error_of, left, processes
from tests.runtime.process.test_processes import result, run, start, writing
from tests.runtime.service import Service, real_service

GAPS = "; ".join(lax.gap for lax in sandbox_features.features().gaps(EVERYTHING))
enforced = pytest.mark.skipif(bool(GAPS), reason=f"`perdure doctor` says: {GAPS}")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="another user reaches less")


@contextmanager
def facts(tmp_path: Path) -> Iterator[list[Any]]:
    """Give what attempts know: a data directory in a folder that they see, and sockets."""
    data, elsewhere = HERE / f"data-{os.getpid()}", tmp_path
    with ExitStack() as stack:
        data.mkdir()
        stack.callback(shutil.rmtree, data)
        (data / "log.db").write_bytes(CANARY)
        (data / "seal.key").write_bytes(CANARY)
        (elsewhere / "note").write_bytes(CANARY)
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = listening.getsockname()[1]
        for address in (f"\0perdure-{port}", str(elsewhere / "socket")):
            unix = stack.enter_context(socket.socket(socket.AF_UNIX))
            unix.bind(address)
            unix.listen()
        yield [str(data), str(elsewhere), os.getpid(), port]


@asynccontextmanager
async def escaping(mode: SandboxMode, *hidden: str) -> AsyncIterator[Service]:
    """Run a node with the plugin that wants to get out."""
    closed = Sandbox(mode, hidden=[Path(path) for path in hidden])
    async with real_service({"escape": declared(Escape)}, sandbox=closed) as s:
        s.plugin_id = "escape"
        with trio.fail_after(60):
            yield s


@asynccontextmanager
async def running_out_of_descriptors() -> AsyncIterator[Callable[[], None]]:
    """Hold all descriptors that this process may have, until asked to let go."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 64, before[1]))
    held: list[int] = []

    def free() -> None:
        while held:
            os.close(held.pop())

    try:
        with suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        yield free
    finally:
        free()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def outcomes(s: Service, names: list[str], known: list[Any]) -> dict[str, Any]:
    """Try several ways; give what came of each."""
    return {name: await result(s, await run(s, "tries", name=name, facts=known)) for name in names}


@enforced
@pytest.mark.parametrize("has_users", [True, pytest.param(False, marks=as_root)])
async def test_no_attempt_to_get_out_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_users: bool
) -> None:
    """Files, processes, privileges, descriptors and networks of others are out of reach.

    Also where a server that is root can have no user namespaces.
    """
    attempts = set(ATTEMPTS)
    if not has_users:
        found = sandbox_features.features()
        poorer = replace(found, namespaces=found.namespaces & ~NEW_USER)
        monkeypatch.setattr(sandbox_features, "features", lambda: poorer)
        attempts.remove("be_root_in_a_user_namespace")  # the system forbids it
    with facts(tmp_path) as known:
        async with escaping("required", known[0]) as s:
            reached = await outcomes(s, sorted(attempts), known)
    assert len(reached) >= 20
    assert {name: what for name, what in reached.items() if "reached" in what} == {}


@as_root
async def test_attempts_succeed_without_a_sandbox(tmp_path: Path) -> None:
    """So they are attempts, and it is the sandbox that stops them."""
    with facts(tmp_path) as known:
        async with escaping("off") as s:
            reached = await outcomes(s, sorted(SHOWN), known)
    assert {name: what for name, what in reached.items() if "reached" not in what} == {}


@enforced
async def test_a_fork_bomb_hurts_itself_alone() -> None:
    """The number of processes has a bound; the next run finds a process."""
    async with escaping("required") as s:
        started = await result(s, await run(s, "forks_without_end"))
        assert 32 < started < 64
        assert await result(s, await run(s, "forks_without_end")) == started  # they are gone


@enforced
async def test_memory_has_a_bound_for_all_processes_together() -> None:
    """Each of them takes little enough, all of them too much: not all get it."""
    async with escaping("required") as s:
        assert await result(s, await run(s, "takes_memory", processes=2, each=30)) == 2
        end = await run(s, "takes_memory", processes=6, each=60)
        assert end["status"] == "failed" or await result(s, end) < 6


@pytest.mark.parametrize("confined", [pytest.param(True, marks=enforced), False])
async def test_what_a_run_leaves_behind_ends_before_its_worker_is_used_again(
    monkeypatch: pytest.MonkeyPatch, confined: bool
) -> None:
    """Children in its group, out of it, and of nobody. The next run has another worker."""
    if not confined:
        monkeypatch.setattr(sandbox_features, "features", SandboxFeatures)
    async with escaping("auto") as s:
        first = await result(s, await run(s, "which"))
        assert await result(s, await run(s, "which")) == first
        assert (await run(s, "leaves_a_child", mark="left-behind"))["status"] == "succeeded"
        assert processes("left-behind") == []
        assert await result(s, await run(s, "which")) != first


@pytest.mark.parametrize("confined", [pytest.param(True, marks=enforced), False])
async def test_nothing_outlives_a_worker(monkeypatch: pytest.MonkeyPatch, confined: bool) -> None:
    """Not what left its group, nor what its parent has left."""
    if not confined:
        monkeypatch.setattr(sandbox_features, "features", SandboxFeatures)
    async with escaping("auto") as s:
        await run(s, "leaves_and_dies", mark="left-alone")
        assert await left("left-alone") == []


@enforced
async def test_a_process_writes_where_it_may(tmp_path: Path) -> None:
    """Into empty folders of its own, and into what the plugin asks for."""
    places = tmp_path / "places"
    places.mkdir()
    async with real_service({"escape": writing(declared(Escape), places)}) as s:
        s.plugin_id = "escape"
        own = f"{Path.home()}/note-{os.getpid()}"
        for path in (f"/tmp/note-{os.getpid()}", own, "/dev/shm/note", str(places / "note")):  # noqa: S108
            assert Path(path).name in await result(s, await run(s, "keeps_notes", path=path))
        assert (places / "note").read_text() == "note"
        await run(s, "keeps_notes", path=str(tmp_path / "note"))
        assert not Path(own).exists()
        assert not (tmp_path / "note").exists()


@enforced
@pytest.mark.parametrize(
    ("reads", "why"),
    [
        ("/no/such/folder", "reads names /no/such/folder, which does not exist"),
        ("{data}/log.db", "belongs to the log"),
        ("{data}", "belongs to the log"),
        ("/", "is everything"),
    ],
)
async def test_a_plugin_that_asks_for_what_cannot_be_shown_is_refused(
    tmp_path: Path, reads: str, why: str
) -> None:
    """With the place and what to do, before anything is started."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "log.db").touch()
    (tmp_path / "plugin.toml").write_text(
        f'id = "greedy"\nversion = "1"\nreads = ["{reads.format(data=data)}"]\n'
        '[entries.go]\ncommand = ["true"]\n'
    )
    closed = Sandbox(hidden=[data])
    async with real_service({"greedy": read_manifest(tmp_path)}, sandbox=closed) as s:
        s.plugin_id = "greedy"
        error = await error_of(s, "go")
        assert error["code"] == "PLUGIN_NOT_STARTED"
        assert why in error["message"]


async def test_a_sandbox_that_cannot_be_set_up_fails_its_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With why; the entry was not called."""
    found = SandboxFeatures(groups=ControlGroups(pids="/no/such/folder"))
    monkeypatch.setattr(sandbox_features, "features", lambda: found)
    async with escaping("auto") as s:
        error = await error_of(s, "which")
        assert error["code"] == "PLUGIN_NOT_STARTED"
        assert "/no/such/folder" in error["message"]
        assert "No such file" in error["message"]


async def test_what_is_required_and_not_enforced_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With what is missing and how to have it; where less will do, the run succeeds."""
    monkeypatch.setattr(sandbox_features, "features", lambda: SandboxFeatures(trouble="no luck"))
    async with escaping("required") as s:
        error = await error_of(s, "which")
        assert error["code"] == "PLUGIN_NOT_STARTED"
        for told in ("no luck", "network = false", "memory", "number", "Delegate=yes"):
            assert told in error["message"]
    async with escaping("auto") as s:
        assert (await run(s, "which"))["status"] == "succeeded"


async def test_a_run_waits_for_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has none left starts the process when some are free; workers give theirs."""
    monkeypatch.setattr(pool, "FREE_FILES", 0.01)
    async with escaping("auto") as s, running_out_of_descriptors() as free:
        run_id = await start(s, "which")
        await trio.sleep(0.1)
        assert (await s.read(run_id))["status"] == "running"
        free()
        assert (await s.finished(run_id))["status"] == "succeeded"


async def test_a_run_does_not_wait_for_descriptors_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It fails then, with what to do."""
    monkeypatch.setattr(pool, "LONGEST_WAIT", 0.2)
    async with escaping("auto") as s:
        async with running_out_of_descriptors():
            error = await error_of(s, "which")
        assert error["code"] == "PLUGIN_NOT_STARTED"
        assert error["retriable"]
        assert "ulimit -n" in error["message"]
