"""A plugin whose entries have secrets."""

from __future__ import annotations

import os
from typing import Annotated, Any
from unittest import mock

import msgspec
import trio
from msgspec import Meta

from perdure.actors.run.events import RUN_EVENTS, RunCreated
from perdure.eventlog import MemoryStore
from perdure.eventlog.store import Bounds
from perdure.runtime.plugins.contract import PluginError
from perdure.runtime.plugins.plugin import declared, entry, plugin
from perdure.runtime.plugins.run_context import RunContext
from perdure.runtime.runs.part import runs_of
from perdure.runtime.secrets.references import SecretSource
from perdure.runtime.secrets.secret import Secret
from tests.runtime.service import Service

VALUE = "correct-horse"
REFERENCE = {"secret": "horse"}
SOURCE = SecretSource({"PERDURE_SECRET_HORSE": VALUE})
SEEN: list[Any] = []


class Login(msgspec.Struct):
    """Two texts, to be kept together."""

    user: str
    password: str


LoginSecret = Annotated[Login, Meta(extra_json_schema={"writeOnly": True})]


@plugin("test", version="1")
class Guarded:
    """Entries with secrets."""

    @entry
    async def confirm(self, ctx: RunContext, token: Secret) -> Any:
        """Ask before it is used."""
        return await ctx.run.ask("Use it?")

    @entry
    async def use(
        self,
        ctx: RunContext,
        token: Secret,
        second: Secret | None = None,
        url: str = "",
        login: LoginSecret | None = None,
    ) -> str:
        """Use a secret."""
        SEEN.append((token, second, login))
        await trio.sleep(1)
        return "used"

    @entry
    async def choosy(self, ctx: RunContext, token: Annotated[Secret, Meta(min_length=10)]) -> None:
        """Take long secrets only."""

    @entry
    async def fails(self, ctx: RunContext, token: Secret) -> None:
        """Fail."""
        raise PluginError("NO", "no")

    @entry
    async def stay(self, ctx: RunContext, token: Secret) -> str:
        """Stay for ever in the first process, and end in the next."""

        async def here() -> int:
            return os.getpid()

        if await ctx.run.step("where", here) == os.getpid():
            await ctx.run.export_text("staying")
            await trio.sleep_forever()
        return f"stayed with {len(token)}"

    @entry
    async def parent(self, ctx: RunContext, token: Any) -> str:
        """Start a child."""
        return await ctx.run.start("test", "use", {"token": token})


PLUGINS = {"test": declared(Guarded)}


def created(store: MemoryStore) -> list[RunCreated]:
    """How the runs in a log were created."""
    records = store.read_all(0, Bounds(records=1 << 30, bytes=1 << 40)).records
    return [RUN_EVENTS.decode(r) for r in records if r.name == RunCreated.event_name]


def held(s: Service) -> Any:
    """Let no run begin for a while."""
    return mock.patch.object(runs_of(s.node).executor, "_start_ready", return_value=None)
