"""Where groups can be made that limit processes together, in both layouts that systems have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.runtime.process import control_groups
from perdure.runtime.process.control_groups import NO_GROUPS, ControlGroups, find_control_groups


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Give a folder that stands for what the kernel tells about a process."""
    folder = tmp_path / "proc"
    folder.mkdir()
    return folder


def told(proc: Path, groups: list[str], mounts: list[str]) -> None:
    """Have the kernel tell the groups of a process and what is mounted."""
    (proc / "cgroup").write_text("\n".join(groups))
    (proc / "mountinfo").write_text("\n".join(mounts))


def test_each_controller_has_its_hierarchy(tmp_path: Path, proc: Path) -> None:
    """Groups are made inside of those that the server is in; what is left of dead ones goes."""
    memory, pids = tmp_path / "memory" / "service", tmp_path / "pids"
    for folder in (memory, pids):
        folder.mkdir(parents=True)
    (pids / "perdure-4194305").mkdir()  # more than any process has
    (pids / f"perdure-{os.getppid()}").mkdir()
    told(
        proc,
        ["4:memory:/service", "8:pids:/", "9:name=systemd:/", "0::/"],
        [
            f"30 25 0:26 / {tmp_path}/memory rw - cgroup cgroup rw,memory",
            f"31 25 0:27 / {tmp_path}/pids rw - cgroup cgroup rw,pids",
        ],
    )
    found = find_control_groups(proc)
    assert found == ControlGroups(str(memory), str(pids))
    assert [left.name for left in pids.iterdir()] == [f"perdure-{os.getppid()}"]
    assert found.limits(1 << 20, 7) == [
        (str(pids), {"pids.max": "7"}),
        (
            str(memory),
            {"memory.limit_in_bytes": "1048576", "memory.memsw.limit_in_bytes": "1048576"},
        ),
    ]
    assert found.limits(None, 7) == [(str(pids), {"pids.max": "7"})]


@pytest.mark.parametrize("root", ["/", "/slice"])
def test_one_hierarchy_has_all_controllers(tmp_path: Path, proc: Path, root: str) -> None:
    """The server moves into a group below its own, which then can have others with limits."""
    group = tmp_path / "unified" / "service"
    group.mkdir(parents=True)
    (group / "cgroup.subtree_control").touch()
    path = f"{root.rstrip('/')}/service"
    told(
        proc,
        [f"0::{path}"],
        [f"30 25 0:26 {root} {tmp_path}/unified rw - cgroup2 cgroup2 rw"],
    )
    found = find_control_groups(proc)
    assert found == ControlGroups(str(group), str(group), is_unified=True)
    assert (group / "cgroup.subtree_control").read_text() == "+memory +pids "
    moved = group / f"perdure-server-{os.getpid()}" / "cgroup.procs"
    assert moved.read_text() == str(os.getpid())
    ((made, settings),) = found.limits(1 << 20, 7)
    assert made == str(group)
    assert settings == {
        "pids.max": "7",
        "memory.max": "1048576",
        "memory.swap.max": "0",
        "memory.oom.group": "1",
    }


def test_a_group_that_passes_its_controllers_on_is_used_as_it_is(
    tmp_path: Path, proc: Path
) -> None:
    """Nobody moves."""
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids")
    told(proc, ["0::/"], [f"30 25 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw"])
    assert find_control_groups(proc) == ControlGroups(str(tmp_path), str(tmp_path), is_unified=True)
    assert not list(tmp_path.glob("perdure-*"))


def test_a_group_with_other_processes_is_left_alone(
    tmp_path: Path, proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel refuses; the server goes back to where it was."""
    group = tmp_path / "group"
    group.mkdir()
    (group / "cgroup.subtree_control").mkdir()  # it cannot be written
    monkeypatch.setattr(control_groups, "_enabled", lambda _: frozenset())
    told(proc, ["0::/"], [f"30 25 0:26 / {group} rw - cgroup2 cgroup2 rw"])
    assert find_control_groups(proc) == NO_GROUPS
    assert (group / "cgroup.procs").read_text() == str(os.getpid())


@pytest.mark.parametrize(
    ("groups", "mounts"),
    [
        ([], []),
        (["0::/service"], []),
        (["0::/service"], ["30 25 0:26 /another /there rw - cgroup2 cgroup2 rw"]),
        (["0::/service"], ["30 25 0:26 / /no/such/folder rw - cgroup2 cgroup2 rw"]),
        (["4:memory:/"], ["30 25 0:26 / /no/such/folder rw - cgroup cgroup rw,memory"]),
    ],
)
def test_without_groups_there_are_no_limits_for_all(
    proc: Path, groups: list[str], mounts: list[str]
) -> None:
    """None are mounted, they are those of another, or nothing can be made there."""
    told(proc, groups, mounts)
    assert find_control_groups(proc) == NO_GROUPS
    assert NO_GROUPS.limits(1 << 20, 7) == []


def test_a_system_that_has_no_groups_is_no_error(tmp_path: Path) -> None:
    """It tells nothing of them."""
    assert find_control_groups(tmp_path / "nothing") == NO_GROUPS
