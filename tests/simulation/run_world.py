"""A world around runs: a whole server on a failing disk, killed at any point, and its clients."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import trio

from actors.errors import NoSuchActor
from actors.run.core import RUN
from actors.run.events import RUN_EVENTS, ExportAppended, RunCreated, RunEnded
from actors.run.views import record
from eventlog.errors import EventLogError
from eventlog.log import open_log
from eventlog.simulation import Dead, SimEnv
from eventlog.store import Bounds
from perdure import PluginError, Retry, RunContext, entry, plugin
from runtime.catalogue import Catalogue
from runtime.directory import Directory
from runtime.errors import OperationError, translated
from runtime.host import Host, HostLimits
from runtime.plugin import declared
from runtime.principal import LOCAL
from runtime.recovery import recover
from runtime.requests import CancelRun, CreateRun, GetRun, RetryRun
from runtime.runs import Runs
from tests.simulation.disk import Disk, DiskView
from tests.simulation.world import Violation, cancel_when, plan_crash

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_ALL = Bounds(records=1 << 30, bytes=1 << 40)
BODIES: Counter[str] = Counter()  # how often each step's body was begun, outside of any process


@plugin("sim", limit=4)
class Simulated:
    """What the simulated server executes."""

    @entry
    async def work(
        self, ctx: RunContext, steps: int, nap: float, *, fails: bool = False, deaf: bool = False
    ) -> str:
        """Do steps with exports before and after them, in two tasks at once."""
        await ctx.run.export_text("begun")

        async def one(number: int) -> int:
            BODIES[f"{ctx.run.id}/{number}"] += 1
            with trio.CancelScope(shield=deaf):
                await trio.sleep(nap)
            if fails and number == 1 and BODIES[f"{ctx.run.id}/{number}"] % 3:
                raise OSError("not this time")
            return number

        async def aside() -> None:
            for number in range(steps):
                await ctx.run.export_text(f"aside {number}", key=f"aside-{number}")
                ctx.run.progress(number / steps)
                await trio.sleep(nap / 2)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(aside)
            for number in range(steps):
                await ctx.run.step(f"s{number}", one, number, retry=Retry(tries=9, delay=0.1))
                await ctx.run.export_text("again")  # equal items: only their count tells
        await ctx.run.sleep(nap)
        return "done"

    @entry
    async def stumble(self, ctx: RunContext) -> None:
        """Fail, after having said something."""
        await ctx.run.export_text("before")
        raise PluginError("STUMBLED", "as ever")


@dataclass
class RunWorld:
    """Everything of one seed."""

    chance: random.Random
    disk: Disk
    server: Runs | None = None
    env: SimEnv | None = None
    lives: int = 0
    crashes_left: int = 0
    keys: dict[str, str] = field(default_factory=dict)
    accepted: dict[str, dict[str, Any]] = field(default_factory=dict)
    canceled: set[str] = field(default_factory=set)
    calm: trio.Event = field(default_factory=trio.Event)

    async def call(self, fn: Callable[[Runs], Awaitable[Any]]) -> Any:
        """Ask the server until it answers; what a dead server says is not heard."""
        while True:
            server, env = self.server, self.env
            if server is not None and env is not None:
                answer = await self._try(server, env, fn)
                if answer is not None and not env.died.is_set():
                    return answer
            await trio.sleep(self.chance.choice([0, 0.05, 0.3]))

    async def _try(self, server: Runs, env: SimEnv, fn: Callable[[Runs], Awaitable[Any]]) -> Any:
        answer: Any = None
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancel_when, env.died, scope)
                if self.chance.random() < 0.1:
                    scope.deadline = trio.current_time() + self.chance.choice([0, 0.001, 0.1])
                try:
                    answer = await fn(server)
                except Dead:
                    pass
                except (EventLogError, OperationError, NoSuchActor) as error:
                    if not translated(error).kind.retriable:
                        raise Violation(f"a proper request was refused: {error}") from error
                scope.cancel()
        return answer


# The server


async def run_server(world: RunWorld) -> None:
    """Run the server, kill it, run it again; in the end leave it alone."""
    world.crashes_left = world.chance.randrange(4)
    while True:
        env = SimEnv(world.chance)
        if world.crashes_left:
            world.crashes_left -= 1
            plan_crash(world.chance, env, 25)
        else:
            world.calm.set()
        try:
            await run_process(world, env)
        except* (Dead, EventLogError):
            pass
        env.kill()
        world.server = world.env = None
        world.lives += 1
        await trio.sleep(world.chance.choice([0, 0.1, 0.5]))


async def run_process(world: RunWorld, env: SimEnv) -> None:
    """Be one life of the server."""
    with closing(Directory(":memory:")) as directory:
        await run_on(world, env, directory)


async def run_on(world: RunWorld, env: SimEnv, directory: Directory) -> None:
    """Run until killed, with a directory of its own."""
    async with trio.open_nursery() as outside:
        outside.start_soon(cancel_when, env.died, outside.cancel_scope)
        async with open_log(env, DiskView(world.disk, env)) as log, trio.open_nursery() as nursery:
            limits = HostLimits(runs=world.chance.choice([1, 5, 100]), cancel_grace=1.0)
            host = Host(env, log, {"sim": declared(Simulated)}, limits=limits)
            await nursery.start(host.run)
            catalogue = Catalogue(log, directory)
            await nursery.start(catalogue.run)
            await recover(host, catalogue.open_runs)
            world.server, world.env = Runs(host, catalogue), env
            await trio.sleep_forever()


# Clients


async def use_a_run(world: RunWorld, number: int) -> None:
    """Create a run, maybe twice at once; maybe cancel it; maybe try again what has ended."""
    chance = world.chance
    await trio.sleep(chance.choice([0, 0, 0.1, 1]))
    key = f"key-{number}"
    request = CreateRun(
        plugin_id="sim",
        entry_id=chance.choice(["work", "work", "work", "stumble"]),
        args={},
        idempotency_key=key,
        timeout=chance.choice([None, None, 5.0]),
    )
    if request.entry_id == "work":
        request.args = {
            "steps": chance.randrange(4),
            "nap": chance.choice([0, 0.01, 0.5]),
            "fails": chance.random() < 0.3,
            "deaf": chance.random() < 0.2,
        }

    async def create() -> None:
        run = (await world.call(lambda server: server.create(LOCAL, request)))["run"]
        if world.keys.setdefault(key, run["run_id"]) != run["run_id"]:
            raise Violation(f"{key} stands for two runs")
        world.accepted[run["run_id"]] = run

    async with trio.open_nursery() as nursery:
        nursery.start_soon(create)
        if chance.random() < 0.5:
            nursery.start_soon(create)
    if chance.random() < 0.5:
        await trio.sleep(chance.choice([0, 0.01, 0.3]))
        await cancel(world, world.keys[key], force=chance.random() < 0.2)
    if chance.random() < 0.3:
        await retry(world, world.keys[key])


async def cancel(world: RunWorld, run_id: str, *, force: bool) -> None:
    """Cancel a run; the answer shows it."""
    request = CancelRun(run_id=run_id, force=force)
    run = (await world.call(lambda server: server.cancel(LOCAL, request)))["run"]
    if not run["cancel_requested"] and run["finished_at"] is None:
        raise Violation("a cancel request was answered and is not there")
    world.canceled.add(run_id)


async def retry(world: RunWorld, run_id: str) -> None:
    """Wait for the end of a run and try it again."""
    while True:
        run = (await world.call(lambda s: s.get(LOCAL, GetRun(run_id=run_id))))["run"]
        if run["finished_at"] is not None:
            break
        await trio.sleep(0.5)
    again = (await world.call(lambda s: s.retry(LOCAL, RetryRun(run_id=run_id))))["run"]
    world.accepted[again["run_id"]] = again


# The whole


async def live(chance: random.Random) -> str:
    """Live through one seed."""
    BODIES.clear()
    world = RunWorld(chance, Disk(chance))
    async with trio.open_nursery() as everything:
        everything.start_soon(run_server, world)
        async with trio.open_nursery() as clients:
            for number in range(5):
                clients.start_soon(use_a_run, world, number)
        world.disk.heal()
        world.crashes_left = 0
        while not world.calm.is_set():
            if world.env is not None:
                world.env.kill()
            await trio.sleep(0.1)
        await let_all_end(world)
        await check_live_state(world)
        everything.cancel_scope.cancel()
    check_log(world)
    return repr([r[:4] for r in world.disk.records])


async def let_all_end(world: RunWorld) -> None:
    """Every run ends; none stays running for ever."""
    for _ in range(120):
        created = [r for r in world.disk.records if r.name == RunCreated.event_name]
        if all(world.disk.stream_state(r.stream).sealed for r in created):
            return
        await trio.sleep(1)
    raise Violation("a run does not end")


async def check_live_state(world: RunWorld) -> None:
    """What the server says of a run is what the log says."""
    for run_id in world.accepted:
        said = (await world.call(lambda s, r=run_id: s.get(LOCAL, GetRun(run_id=r))))["run"]  # type: ignore[misc]
        stored = world.disk.read_stream(f"run/{run_id}", 0, _ALL).records
        folded = RUN.replay([RUN_EVENTS.decode(r) for r in stored])
        if folded is None or said != record(folded, stored[-1].commit_time):
            raise Violation("the live state is not the fold of the log")


def check_log(world: RunWorld) -> None:
    """Check what can be read off the log alone."""
    keys: Counter[str] = Counter()
    streams = {r.stream for r in world.disk.records if r.stream.startswith("run/")}
    missing = {f"run/{run_id}" for run_id in world.accepted} - streams
    if missing:
        raise Violation(f"acknowledged runs are lost: {missing}")
    for stream in streams:
        events = [RUN_EVENTS.decode(r) for r in world.disk.read_stream(stream, 0, _ALL).records]
        created: RunCreated = events[0]
        if created.idempotency_key:
            keys[created.idempotency_key] += 1
        if [isinstance(event, RunEnded) for event in events].count(True) != 1:
            raise Violation(f"{stream} has not exactly one end")
        if not isinstance(events[-1], RunEnded):
            raise Violation(f"something follows the end of {stream}")
        check_exports(world, created, events)
    if any(times > 1 for times in keys.values()):
        raise Violation("a key made two runs")
    for step, times in BODIES.items():
        if times > 9 * (1 + world.lives):
            raise Violation(f"{step} was begun {times} times in {world.lives} lives")


def check_exports(world: RunWorld, created: RunCreated, events: list[Any]) -> None:
    """Each export is there once, whatever happened in between."""
    items = [event for event in events if isinstance(event, ExportAppended)]
    if [item.number for item in items] != list(range(1, len(items) + 1)):
        raise Violation("export items are not numbered one by one")
    if created.entry_id != "work" or events[-1].outcome.value != "succeeded":
        return
    steps = created.args["steps"]
    said = Counter(item.text for item in items if item.text)
    wanted = Counter({"begun": 1, "again": steps, **{f"aside {n}": 1 for n in range(steps)}})
    if said != +wanted:
        raise Violation(f"exports of {created.run_id}: {said}, not {wanted}")
