"""Attempts to get out of a sandbox: at files, processes, privileges, descriptors, networks.

An attempt returns what it has reached, or fails. Each is harmless where it succeeds, so that tests
can show that it does succeed without a sandbox.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

CANARY = b"a canary that is in the log"
HERE = Path(__file__).parent
libc = ctypes.CDLL(None, use_errno=True)


class Facts(NamedTuple):
    """What an attempt knows of its server; more than a plugin would know."""

    data: Path  # the data directory
    elsewhere: Path  # a folder of somebody else
    server: int  # the server's process
    port: int  # a port on the loopback interface that something listens on


Attempt = Callable[[Facts], object]
ATTEMPTS: dict[str, Attempt] = {}
SHOWN: set[str] = set()  # those that succeed without a sandbox, whoever the server is


def attempt(fn: Attempt) -> Attempt:
    """Have something tried; without a sandbox it succeeds."""
    SHOWN.add(fn.__name__)
    return privileged_attempt(fn)


def privileged_attempt(fn: Attempt) -> Attempt:
    """Have something tried; without a sandbox it succeeds, if the system lets the server do it."""
    ATTEMPTS[fn.__name__] = fn
    return fn


def call(name: str, *args: Any) -> None:
    """Call the C library; raise if that fails."""
    if getattr(libc, name)(*args) < 0:
        raise OSError(ctypes.get_errno(), name)


def in_child(work: Callable[[], object]) -> bool:
    """Do something in a process of its own; tell whether it came to its end."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - the status tells
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


# Files


@attempt
def read_the_log(facts: Facts) -> object:
    """By its path."""
    return CANARY in (facts.data / "log.db").read_bytes()


@attempt
def read_the_key_of_secrets(facts: Facts) -> object:
    """By its path."""
    return (facts.data / "seal.key").read_bytes()


@attempt
def list_the_data_directory(facts: Facts) -> object:
    """It is hidden although it lies in a folder that is shown."""
    return list(facts.data.iterdir())


@attempt
def write_into_the_data_directory(facts: Facts) -> object:
    """A file of its own."""
    return (facts.data / "planted").write_text("x")


@attempt
def change_the_log(facts: Facts) -> object:
    """Open it to be written."""
    return (facts.data / "log.db").open("r+b")


@attempt
def read_a_strangers_file(facts: Facts) -> object:
    """One that has nothing to do with the plugin."""
    return (facts.elsewhere / "note").read_text()


@attempt
def read_through_proc(facts: Facts) -> object:
    """By the root and the working directory of other processes."""
    inside = str(facts.data / "log.db").lstrip("/")
    for process in (1, os.getppid(), facts.server):
        seen = Path(f"/proc/{process}")
        for way in (seen / "root" / inside, seen / "cwd" / ".." / ".." / inside):
            with suppress(OSError):
                return CANARY in way.read_bytes()
    return False


@attempt
def follow_a_link_from_scratch(facts: Facts) -> object:
    """A link that was made where it may write."""
    link = Path(f"/tmp/link-{os.getpid()}")  # noqa: S108
    link.symlink_to(facts.data / "log.db")
    try:
        return CANARY in link.read_bytes()
    finally:
        link.unlink()


@attempt
def give_the_log_another_name(facts: Facts) -> object:
    """A hard link to it, beside it."""
    os.link(facts.data / "log.db", facts.data / "another")
    return True


@attempt
def write_into_its_own_folder(_: Facts) -> object:
    """The next run would import it."""
    planted = HERE / "planted.tmp"
    planted.write_text("x")
    planted.unlink()
    return True


@attempt
def change_its_interpreter(_: Facts) -> object:
    """Plant a file that every Python program would see."""
    planted = Path(sys.prefix, "planted.tmp")
    planted.write_text("x")
    planted.unlink()
    return True


@attempt
def write_to_the_root(_: Facts) -> object:
    """A file in the root of all files."""
    planted = Path("/planted.tmp")
    planted.write_text("x")
    planted.unlink()
    return True


@attempt
def change_control_groups(_: Facts) -> object:
    """They are what limits it."""
    return list(Path("/sys/fs/cgroup").iterdir())


@attempt
def fill_the_scratch_folder(_: Facts) -> object:
    """With more than fits into memory, if there were no bound."""
    path = Path(f"/tmp/large-{os.getpid()}")  # noqa: S108
    try:
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 300 << 20)
    finally:
        path.unlink(missing_ok=True)
    return True


# Other processes


@attempt
def see_the_server(facts: Facts) -> object:
    """Its command line, which may hold secrets."""
    return Path(f"/proc/{facts.server}/cmdline").read_bytes()


@attempt
def read_the_servers_environment(facts: Facts) -> object:
    """It may hold secrets."""
    return Path(f"/proc/{facts.server}/environ").read_bytes()


@attempt
def open_the_servers_memory(facts: Facts) -> object:
    """It does hold secrets."""
    return Path(f"/proc/{facts.server}/mem").open("rb")


@attempt
def take_a_descriptor_of_the_server(facts: Facts) -> object:
    """By their numbers."""
    return [number.readlink() for number in Path(f"/proc/{facts.server}/fd").iterdir()]


@attempt
def signal_the_server(facts: Facts) -> object:
    """With one that does nothing."""
    os.kill(facts.server, 0)
    return True


@privileged_attempt
def trace_the_server(facts: Facts) -> object:
    """As a debugger does."""
    seize, detach = 0x4206, 17
    call("ptrace", seize, facts.server, 0, 0)
    call("ptrace", detach, facts.server, 0, 0)
    return True


@privileged_attempt
def trace_its_keeper(_: Facts) -> object:
    """The first process inside has a socket to the server."""
    call("ptrace", 0x4206, 1, 0, 0)
    return True


@privileged_attempt
def open_the_memory_of_its_keeper(_: Facts) -> object:
    """To see what it was told."""
    return Path("/proc/1/mem").open("rb")


@privileged_attempt
def take_the_socket_of_its_keeper(_: Facts) -> object:
    """Over which the server says what is to be ended."""
    get_descriptor, keeper = 438, os.pidfd_open(1)
    try:
        for opened in Path("/proc/1/fd").iterdir():
            with suppress(OSError):
                return opened.readlink()
            with suppress(OSError):
                call("syscall", get_descriptor, keeper, int(opened.name), 0)
                return opened
    finally:
        os.close(keeper)
    return False


@privileged_attempt
def end_its_keeper(_: Facts) -> object:
    """A signal that cannot be ignored, but by the first process."""
    if Path("/proc/1/cmdline").read_bytes().count(b"perdure-guard"):
        os.kill(1, signal.SIGKILL)
        time.sleep(0.05)
        os.kill(1, 0)
        return False  # it is still there, and so is this process
    return "another process"


# Privileges


@attempt
def hold_a_capability(_: Facts) -> object:
    """A program that is started may hold what its parent does not."""
    status = subprocess.run(
        ["/bin/cat", "/proc/self/status"], capture_output=True, text=True, check=True
    ).stdout
    fields = dict(line.split(":\t", 1) for line in status.splitlines())
    return int(fields["CapEff"], 16) or int(fields["CapBnd"], 16) or fields["NoNewPrivs"] == "0"


@privileged_attempt
def mount_something(_: Facts) -> object:
    """A file system of its own."""
    return in_child(lambda: call("mount", b"x", b"/mnt", b"tmpfs", 0, b""))


@privileged_attempt
def unmount_what_hides(facts: Facts) -> object:
    """What lies on the data directory."""
    call("umount2", os.fsencode(facts.data), 2)
    return (facts.data / "log.db").read_bytes()


@attempt
def be_root_in_a_user_namespace(_: Facts) -> object:
    """Where much of the kernel can be reached that is closed elsewhere."""
    return in_child(lambda: call("unshare", 0x10000000))


@privileged_attempt
def unmount_in_a_user_namespace(facts: Facts) -> object:
    """Where everybody is root."""

    def look() -> None:
        call("unshare", 0x10000000 | 0x00020000)
        for place in (facts.data, facts.data.parent, HERE):
            libc.umount2(os.fsencode(place), 2)
            libc.mount(None, os.fsencode(place), None, 32 | 4096, None)
        assert (facts.data / "log.db").read_bytes() or (HERE / "planted.tmp").write_text("x")

    return in_child(look)


@privileged_attempt
def leave_through_chroot(facts: Facts) -> object:
    """The old way: stand outside of a root, and climb."""

    def climb(namespaces: int) -> None:
        if namespaces:
            call("unshare", namespaces)
        top = Path("/tmp/top")  # noqa: S108
        top.mkdir(exist_ok=True)
        os.chroot(top)
        for _ in range(64):
            os.chdir("..")
        os.chroot(".")
        (facts.data / "log.db").read_bytes()

    return in_child(lambda: climb(0)) or in_child(lambda: climb(0x10000000))


@privileged_attempt
def make_a_device(_: Facts) -> object:
    """The disk under all files."""
    device = Path(f"/tmp/disk-{os.getpid()}")  # noqa: S108
    os.mknod(device, stat.S_IFBLK | 0o600, Path("/usr").stat().st_dev)
    return device.open("rb")


@privileged_attempt
def change_a_setting_of_the_kernel(_: Facts) -> object:
    """To what it is; the kernel would start a program of its choice outside."""
    setting = Path("/proc/sys/kernel/core_pattern")
    return setting.write_text(setting.read_text())


@privileged_attempt
def reach_the_kernels_keys(_: Facts) -> object:
    """What an operator presses when nothing else helps."""
    return Path("/proc/sysrq-trigger").open("w")


@privileged_attempt
def raise_its_limits(_: Facts) -> object:
    """Beyond what it was given."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most + 1))
    return True


@privileged_attempt
def leave_a_core_file(_: Facts) -> object:
    """All of its memory, on disk."""
    return resource.getrlimit(resource.RLIMIT_CORE)[1] != 0


# Descriptors and networks


@privileged_attempt
def use_what_it_inherited(_: Facts) -> object:
    """Descriptors that were left open."""
    found = []
    for opened in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(str(opened.readlink()))
    return [path for path in found if not path.startswith(("pipe:", "/dev/null", "/proc/"))]


@attempt
def connect_to_the_loopback(facts: Facts) -> object:
    """Where servers of this machine listen that are for nobody else."""
    return socket.create_connection(("127.0.0.1", facts.port), 2)


@attempt
def connect_to_a_socket_without_a_file(facts: Facts) -> object:
    """Such a socket has a name that no file system hides."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"\0perdure-{facts.port}")
    return True


@attempt
def connect_to_a_socket_in_a_folder(facts: Facts) -> object:
    """Such a socket is a file."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(facts.elsewhere / "socket"))
    return True
