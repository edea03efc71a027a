"""A host without processes."""

from __future__ import annotations

from dataclasses import replace

from trio.testing import MockClock

from perdure.actors.run.status import Status
from perdure.runtime.plugins.plugin import declared
from tests.runtime.process.hostile_plugin import Hostile
from tests.runtime.world import world


async def test_a_host_without_processes_says_so(autojump_clock: MockClock) -> None:
    """A run of an entry that needs one has failed; the others are executed."""
    async with world() as w:
        greeting = await w.create("greet")
        assert (await w.end(greeting)).status is Status.SUCCEEDED
        w.executor.use({"test": replace(declared(Hostile), id="test")})
        end = await w.end(await w.create("fine"))
        assert end.error is not None
        assert end.error.code == "PLUGIN_NOT_STARTED"
        assert "starts no process for 'fine'" in end.error.message
