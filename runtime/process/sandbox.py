"""The sandbox: what a process may see and use, as far as the system can enforce it.

Every process is started by a guard (``guard/program.py``), which ends it, with all that it has
started, when the server wants so or is gone. Where the system has namespaces the process sees only
its own processes and the files it needs (``file_view``), holds no privileges, and is closed off
from the network if the plugin says so. Control groups limit all of its processes together.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from perdure.runtime.plugins.contract import PluginError
from perdure.runtime.process import sandbox_features
from perdure.runtime.process.file_view import Missing
from perdure.runtime.process.guard.order import Order
from perdure.runtime.process.sandbox_features import EVERYTHING, memory_limit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from perdure.eventlog.env import Env
    from perdure.runtime.plugins.plugin import Program
    from perdure.runtime.plugins.settings import SandboxMode
    from perdure.runtime.process.sandbox_features import SandboxFeatures

_log: Final = logging.getLogger("perdure.sandbox")


class Sandbox:
    """How the processes of a server are closed off."""

    def __init__(self, mode: SandboxMode = "auto", *, hidden: Sequence[Path] = ()) -> None:
        """Hide these folders, whatever else is shown."""
        self._mode = mode
        self._hidden = hidden
        self._look = trio.CapacityLimiter(1)  # the first one looks, the others wait for it

    async def announce(self, env: Env) -> None:
        """Log what cannot be enforced here."""
        if self._mode == "off":
            _log.warning("The sandbox is off: process entries may do what the server may do.")
            return
        try:
            found = await self._found(env)
        except OSError:  # too few descriptors; the first run waits for some
            return
        for lax in found.gaps(EVERYTHING):
            _log.warning("Sandbox of process entries: %s; %s.", lax.gap, lax.remedy)

    async def order(self, env: Env, program: Program, command: Sequence[str]) -> Order:
        """Say how a program is to be started, or raise PluginError if that would be too lax."""
        if self._mode == "off":
            return Order(limits=memory_limit(program))
        found = await self._found(env)
        gaps = found.gaps(program) if self._mode == "required" else []
        if gaps:
            told = "; ".join(f"{lax.gap}: {lax.remedy}" for lax in gaps)
            raise _refused(f'the setting `sandbox` is "required", but {told}')
        try:
            return found.order(program, command, self._hidden)
        except Missing as missing:
            raise _refused(str(missing)) from missing

    async def _found(self, env: Env) -> SandboxFeatures:
        return await env.run_sync(sandbox_features.features, limiter=self._look)


def _refused(why: str) -> PluginError:
    return PluginError("PLUGIN_NOT_STARTED", f"the plugin cannot be started: {why}")
