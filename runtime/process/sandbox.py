"""How a process is started so that nothing of it outlives its run.

It leads a session and a process group of its own, in a pid namespace where there is one to be had.
Between it and the server stands a guard, a few lines of shell that hold a pipe to the server: when
the server is gone the pipe closes, and the guard ends everything. It stands outside of the
namespace, where nothing inside can reach it, not even ``kill -9 -1``. Inside, the first process is
a shell that waits: with it ends even what has left the group.
"""

from __future__ import annotations

import os
import shutil
import subprocess  # noqa: TID251 - waited for in a thread, or by a command
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from perdure.runtime.process import descriptors
from perdure.runtime.process.descriptors import GUARD

# The guard starts its command, which does not get the guard's pipe, and a watcher that waits for
# the pipe to close. Asked to end, both
# stay for as long as the command takes to obey; it hears of that itself, as all of its group do.
# What a shell has to say about how its command ended is no line of the run's log. When memory runs
# out, the kernel is to end a command and not the server.
_GUARD: Final = f"""
[ -z "$PERDURE_MEMORY" ] || ulimit -v "$PERDURE_MEMORY"
{{ echo 1000 > /proc/self/oom_score_adj; }} 2>/dev/null
trap : TERM
"$@" {GUARD}<&- &
child=$!
( trap '' TERM; read -r _ <&{GUARD}; kill -9 0 ) >/dev/null 2>&1 &
watcher=$!
exec 2>/dev/null
while wait "$child"; status=$?; [ "$status" -gt 128 ] && kill -0 "$child"; do :; done
kill -9 "$watcher"
exit "$status"
"""
_FIRST: Final = ("/bin/sh", "-c", '"$@" & exec 2>/dev/null; wait "$!"', "perdure-first")


@dataclass(frozen=True, slots=True)
class SandboxFeatures:
    """What the system lets us do."""

    pid_namespace: tuple[str, ...] | None  # the command that makes one
    network_namespace: tuple[str, ...] | None


@lru_cache(maxsize=1)
def features() -> SandboxFeatures:
    """Find out what works here, by trying. This waits for processes: call it in a thread."""
    pid = ("--pid", "--fork", "--kill-child")
    return SandboxFeatures(
        pid_namespace=_first_that_works(pid),
        network_namespace=_first_that_works((*pid, "--net")),
    )


def _first_that_works(options: tuple[str, ...]) -> tuple[str, ...] | None:
    unshare = shutil.which("unshare")
    if unshare is None:
        return None
    ways = [(unshare, *options), (unshare, "--user", "--map-current-user", *options)]
    for way in ways if os.geteuid() == 0 else reversed(ways):
        try:
            done = subprocess.run(  # noqa: S603 - a fixed command
                [*way, "true"], check=False, capture_output=True, timeout=5
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return way
    return None


def guarded(
    command: tuple[str, ...], fds: tuple[int, int, int], found: SandboxFeatures, *, network: bool
) -> list[str]:
    """Give the command that starts another under a guard, as closed off as is possible here.

    It is passed the descriptors to read, to write, and of the guard, whatever their numbers.
    """
    way = found.pid_namespace if network else found.network_namespace or found.pid_namespace
    inside = (*way, *_FIRST) if way else ()
    lowered = (sys.executable, "-I", "-S", descriptors.__file__, ",".join(map(str, fds)))
    return [*lowered, "/bin/sh", "-c", _GUARD, "perdure-guard", *inside, *command]
