"""A whole node in virtual time, asked through the table of operations and held to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec
import pytest

from perdure.actors.run.views import RunDelta, RunRecord
from perdure.eventlog import EventLog, MemoryStore, RealEnv, open_log
from perdure.eventlog.snapshots import Snapshots
from perdure.runtime.blobs.depot import Depot
from perdure.runtime.blobs.store import BlobLimits, BlobStore
from perdure.runtime.execution.limits import HostLimits
from perdure.runtime.kernel.channels import Subscription
from perdure.runtime.kernel.channels.service import Frame
from perdure.runtime.kernel.claims import CLAIM_WINDOW
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.node import Node, open_node
from perdure.runtime.kernel.principal import LOCAL, Principal
from perdure.runtime.kernel.requests import Request
from perdure.runtime.plugins.plugin import Plugin, declared
from perdure.runtime.process.sandbox import Sandbox
from perdure.runtime.runs.answers import ExportPage, RunAnswer, RunPage
from perdure.runtime.runs.bulk import RATE
from perdure.runtime.runs.feature import RunsFeature
from perdure.runtime.runs.part import RunResources, runs_of
from perdure.runtime.runs.requests import (
    AnswerRun,
    CancelRun,
    CreateRun,
    ExportRun,
    GetRun,
    ListRuns,
    RetryRun,
)
from perdure.runtime.runs.settings import TriggerMode, UnknownEntries
from perdure.runtime.secrets.references import SecretSource
from perdure.runtime.secrets.sealed_files import Seals
from perdure.runtime.secrets.secrets import Secrets
from perdure.runtime.secrets.vault import Vault
from tests.eventlog.conftest import SteadyEnv
from tests.features import TRIED
from tests.runtime.world import Example, Other, World

TWO_PLUGINS: Mapping[str, Plugin] = {"test": declared(Example), "other": declared(Other)}


class Service:
    """The operations, with shorter ways to call them."""

    def __init__(self, node: Node, store: MemoryStore) -> None:
        """Wrap a running node."""
        self.node = node
        self.plugin_id = "test"
        self.world = World(runs_of(node).executor, store)

    async def call(
        self, name: str, request: Request | Mapping[str, Any], principal: Principal = LOCAL
    ) -> Any:
        """Call an operation; its answer and its errors are those that the table promises."""
        args = msgspec.to_builtins(request) if isinstance(request, Request) else request
        row = TRIED.operations[name]
        try:
            answer = await self.node.operations.call(principal, name, args)
        except OperationError as error:
            if error.code not in row.errors:
                raise AssertionError(f"{name} does not promise {error.code}") from error
            raise
        if not row.follows:
            assert msgspec.convert(answer, row.response) == answer
            await self.node.log.resolve(answer["cursor"])
        return answer

    async def create(self, principal: Principal, request: CreateRun) -> RunAnswer:
        """Create a run."""
        return await self.call("runs.create", request, principal)  # type: ignore[no-any-return]

    async def get(self, principal: Principal, request: GetRun) -> RunAnswer:
        """Read a run."""
        return await self.call("runs.get", request, principal)  # type: ignore[no-any-return]

    async def list(self, principal: Principal, request: ListRuns) -> RunPage:
        """List runs."""
        return await self.call("runs.list", request, principal)  # type: ignore[no-any-return]

    async def cancel(self, principal: Principal, request: CancelRun) -> RunAnswer:
        """Cancel a run."""
        return await self.call("runs.cancel", request, principal)  # type: ignore[no-any-return]

    async def retry(self, principal: Principal, request: RetryRun) -> RunAnswer:
        """Retry a run."""
        return await self.call("runs.retry", request, principal)  # type: ignore[no-any-return]

    async def answer(self, principal: Principal, request: AnswerRun) -> RunAnswer:
        """Answer a question of a run."""
        return await self.call("runs.answer", request, principal)  # type: ignore[no-any-return]

    async def export(self, principal: Principal, request: ExportRun) -> ExportPage:
        """Read a run's exports."""
        return await self.call("runs.export", request, principal)  # type: ignore[no-any-return]

    async def start(self, entry_id: str, **more: Any) -> RunRecord:
        """Create a run and give its record."""
        asked = {"plugin_id": "test", "args": {}, **more}
        request = CreateRun(entry_id=entry_id, **asked)
        return (await self.create(LOCAL, request))["run"]

    async def read(self, run_id: str, at: str | int | None = None) -> RunRecord:
        """Read a run's record."""
        return (await self.get(LOCAL, GetRun(run_id=run_id, at=at)))["run"]

    async def finished(self, run_id: str) -> RunRecord:
        """Wait for the end of a run and give its record."""
        await self.world.end(run_id)
        return await self.read(run_id)

    async def follow(self, channel: str, principal: Principal = LOCAL, **more: Any) -> Subscription:
        """Follow a channel."""
        request = {"channel": channel, **more}
        return await self.call("log.follow", request, principal)  # type: ignore[no-any-return]

    async def cursor(self) -> str:
        """The cursor at the head of the log."""
        return self.node.log.cursor(await self.node.log.head())


async def next_frame(subscription: Subscription) -> Frame:
    """Wait for the next delivery, with its events as they are."""
    shown, cursor, live, end = await subscription.next_delivery()
    events = [one.as_event() for one in shown]
    return {"events": events, "cursor": cursor, "live": live, "end": end}


async def events(subscription: Subscription) -> list[Any]:
    """Pull what a follower has missed, until it is live."""
    missed: list[Any] = []
    while True:
        frame = await next_frame(subscription)
        missed.extend(frame["events"])
        if frame["live"]:
            return missed


async def until_ended(subscription: Subscription) -> list[RunDelta]:
    """Pull deltas until one tells an end."""
    seen: list[Any] = []
    while not seen or seen[-1]["status"] not in {"succeeded", "failed", "canceled", "timeout"}:
        seen.extend((await next_frame(subscription))["events"])
    return seen


def open_tried(
    log: EventLog, plugins: Mapping[str, Plugin], **resources: Any
) -> AbstractAsyncContextManager[Node]:
    """Open a node with all features, in memory; ``resources`` are those of runs."""
    runs = RunsFeature(RunResources(plugins=plugins, **resources))
    return open_node(log, TRIED.replacing(runs))


@asynccontextmanager
async def service(  # noqa: PLR0913, PLR0917 - each has a default
    store: MemoryStore | None = None,
    plugins: Mapping[str, Plugin] | None = None,
    claim_window: int = CLAIM_WINDOW,
    blobs: BlobStore | None = None,
    seals: Seals | None = None,
    source: SecretSource | None = None,
    bulk_rate: float = RATE,
    trigger: TriggerMode = "runs",
    snapshots: Snapshots | None = None,
    *,
    trigger_choice: bool = False,
    unknown_entries: UnknownEntries = "refuse",
    **limits: Any,
) -> AsyncIterator[Service]:
    """Run a node in memory; leaving the block ends it as a crash would."""
    store = store or MemoryStore()
    env = SteadyEnv()
    env.delay = 0.001
    secrets = Secrets(env, vault=Vault(env, seals), source=source)
    async with (
        open_log(env, store, snapshots=snapshots) as log,
        open_tried(
            log,
            plugins or {"test": declared(Example)},
            limits=HostLimits(**limits),
            claim_window=claim_window,
            blobs=blobs,
            secrets=secrets,
            bulk_rate=bulk_rate,
            trigger=trigger,
            trigger_choice=trigger_choice,
            unknown_entries=unknown_entries,
        ) as node,
    ):
        yield Service(node, store)


@asynccontextmanager
async def real_service(
    plugins: Mapping[str, Plugin],
    store: MemoryStore | None = None,
    depot: Depot | None = None,
    blob_limits: BlobLimits | None = None,
    seals: Seals | None = None,
    source: SecretSource | None = None,
    trigger: TriggerMode = "runs",
    sandbox: Sandbox | None = None,
    **limits: Any,
) -> AsyncIterator[Service]:
    """Run a node in the real world, on a log in memory."""
    store, env = store or MemoryStore(), RealEnv()
    async with (
        open_log(env, store) as log,
        open_tried(
            log,
            plugins,
            limits=HostLimits(**limits),
            blobs=BlobStore(env, depot, limits=blob_limits),
            secrets=Secrets(env, vault=Vault(env, seals), source=source),
            trigger=trigger,
            sandbox=sandbox,
        ) as node,
    ):
        yield Service(node, store)


async def refused(code: str, call: Callable[[], Any]) -> OperationError:
    """Expect a call to be refused with a code."""
    with pytest.raises(OperationError) as refusal:
        await call()
    assert refusal.value.code == code
    return refusal.value
