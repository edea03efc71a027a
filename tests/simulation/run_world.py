"""A world around runs: a whole server on a failing disk, killed at any point, and its clients.

The server's own life is made hard too: actors leave at any moment, executions are given up for lost
while they still work, ghosts of earlier activations speak, hosts drain.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import trio

from perdure.actors.errors import Fenced, NoSuchActor, Refusal
from perdure.actors.run.commands import Deliver, Finish
from perdure.actors.run.events import StepRecorded
from perdure.actors.run.status import Outcome
from perdure.eventlog.cursor import check_of, parse_cursor
from perdure.eventlog.errors import EventLogError, LogClosed
from perdure.eventlog.log import open_log
from perdure.eventlog.simulation import Dead, SimEnv
from perdure.runtime.execution.executor import Executor
from perdure.runtime.execution.limits import HostLimits
from perdure.runtime.execution.run_ends import LetGo
from perdure.runtime.kernel.errors import OperationError, translated
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.runs.operations import Runs
from perdure.runtime.runs.part import runs_of
from perdure.runtime.secrets.sealed_files import MemorySeals
from perdure.runtime.secrets.secrets import Secrets
from perdure.runtime.secrets.vault import Vault
from tests.runtime.service import open_tried
from tests.simulation.disk import Disk, DiskView, SealsView
from tests.simulation.run_plugin import Simulated
from tests.simulation.world import Violation, cancel_when, plan_crash

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from perdure.runtime.runs.answers import RunAnswer

    Call = Callable[[Runs], Awaitable[RunAnswer]]

PATIENCE: Final = 100.0  # virtual seconds; whoever waits longer for an answer waits for ever


@dataclass
class RunWorld:
    """Everything of one seed."""

    chance: random.Random
    disk: Disk
    server: Runs | None = None
    executor: Executor | None = None
    env: SimEnv | None = None
    lives: int = 0
    crashes_left: int = 0
    healed: bool = False
    keys: dict[str, str] = field(default_factory=dict)
    accepted: set[str] = field(default_factory=set)
    answers: dict[str, list[tuple[str, Any]]] = field(default_factory=dict)  # cursor and record
    latest: dict[str, int] = field(default_factory=dict)  # the newest place heard of each run
    told: dict[tuple[str, str], Any] = field(default_factory=dict)  # accepted answers to questions
    calm: trio.Event = field(default_factory=trio.Event)
    seals: MemorySeals = field(default_factory=MemorySeals)

    async def call(self, fn: Call, *, of_the_past: bool = False) -> RunAnswer:
        """Ask the server until it answers; what a dead server says is not heard."""
        while True:
            server, env = self.server, self.env
            if server is not None and env is not None:
                before = {} if of_the_past else dict(self.latest)
                answer = await self._try(server, env, fn)
                if answer is not None and not env.died.is_set():
                    if isinstance(answer, Refusal):
                        raise answer
                    self._hear(answer, before)
                    return answer
            await trio.sleep(self.chance.choice([0, 0.05, 0.3]))

    async def _try(self, server: Runs, env: SimEnv, fn: Call) -> RunAnswer | Refusal | None:
        answer: RunAnswer | Refusal | None = None
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancel_when, env.died, scope)
                if self.chance.random() < 0.3:
                    nursery.start_soon(let_all_go, server._executor)  # at the moment of the ask
                if self.chance.random() < 0.1:
                    scope.deadline = trio.current_time() + self.chance.choice([0, 0.001, 0.1])
                try:
                    with trio.fail_after(PATIENCE):
                        answer = await fn(server)
                except (Dead, LetGo):
                    pass
                except trio.TooSlowError:
                    raise Violation("nobody answers") from None
                except Refusal as refusal:
                    answer = refusal
                except (EventLogError, OperationError, NoSuchActor) as error:
                    if not translated(error).kind.retriable:
                        raise Violation(f"a proper request was refused: {error}") from error
                scope.cancel()
        return answer

    def _hear(self, answer: RunAnswer, before: dict[str, int]) -> None:
        """Take an answer in: its place is in the log, and not before what was known already."""
        run_id, cursor = answer["run"]["run_id"], parse_cursor(answer["cursor"])
        mark = self.disk.mark_at(cursor.position)
        if mark is None or check_of(mark.event_id) != cursor.check:
            raise Violation("an answer is true at a place that is not in the log")
        if cursor.position < before.get(run_id, 0):
            raise Violation("an answer is older than what was known before the question")
        self.answers.setdefault(run_id, []).append((answer["cursor"], answer["run"]))
        self.latest[run_id] = max(self.latest.get(run_id, 0), cursor.position)


# The server


async def run_server(world: RunWorld) -> None:
    """Run the server, kill it, run it again; in the end leave it alone."""
    world.crashes_left = world.chance.randrange(4)
    while True:
        env, healthy = SimEnv(world.chance), world.healed
        if world.crashes_left:
            world.crashes_left -= 1
            plan_crash(world.chance, env, 40)
        else:
            world.calm.set()
        try:
            await run_process(world, env)
        except* (Dead, LogClosed):
            if healthy and not env.died.is_set():
                raise Violation("a server fell over on a healthy disk") from None
        except* Violation:
            raise
        except* Exception as failed:
            raise Violation(f"a server fell over: {failed!r}") from failed
        env.kill()
        world.server = world.executor = world.env = None
        world.lives += 1
        await trio.sleep(world.chance.choice([0, 0.1, 0.5]))


async def run_process(world: RunWorld, env: SimEnv) -> None:
    """Be one life of the server, with all features, until killed."""
    chance, will_crash = world.chance, not world.calm.is_set()
    limits = HostLimits(
        runs=chance.choice([1, 5, 100]),
        cancel_grace=1.0,
        sync_wait=2.0,
        idle=chance.choice([0.05, 1, 60]),
    )
    async with trio.open_nursery() as outside:
        outside.start_soon(cancel_when, env.died, outside.cancel_scope)
        secrets = Secrets(env, vault=Vault(env, SealsView(world.seals, env)))
        async with (
            open_log(env, DiskView(world.disk, env)) as log,
            open_tried(log, {"sim": declared(Simulated)}, limits=limits, secrets=secrets) as node,
            trio.open_nursery() as nursery,
        ):
            part = runs_of(node)
            executor = part.executor
            if chance.random() < 0.5:
                nursery.start_soon(send_actors_away, chance, executor)
            world.server, world.executor, world.env = part.runs, executor, env
            nursery.start_soon(give_up_for_lost, chance, executor)
            nursery.start_soon(haunt, chance, executor)
            if will_crash and chance.random() < 0.2:
                nursery.start_soon(drain, chance, executor, env)
            await trio.sleep_forever()


async def let_all_go(executor: Executor) -> None:
    """Passivate every actor that nobody waits for."""
    executor.runs.let_go()


async def send_actors_away(chance: random.Random, executor: Executor) -> None:
    """Passivate actors at any moment, not only when they have long been idle."""
    for _ in range(60):
        await trio.sleep(chance.choice([0, 0, 0.001, 0.02, 0.1]))
        executor.runs.let_go(lambda _: chance.random() < 0.5)


async def give_up_for_lost(chance: random.Random, executor: Executor) -> None:
    """Activate runs again whose execution is alive: it becomes a zombie."""
    for _ in range(chance.choice([0, 0, 1, 3])):
        await trio.sleep(chance.uniform(0, 1))
        if executor._executions:
            executor.dispatch(chance.choice(list(executor._executions)), "sim")


async def haunt(chance: random.Random, executor: Executor) -> None:
    """Speak as an activation that is over, of a run that goes on or has ended."""
    for _ in range(chance.choice([0, 3])):
        await trio.sleep(chance.uniform(0, 2))
        for actor in list(executor.runs._live.values()):
            run = actor.folded.state if actor.folded is not None else None
            if run is not None and run.epoch > run.active:
                await speak_as_a_ghost(chance, executor, run.created.run_id, run.epoch - run.active)


async def speak_as_a_ghost(
    chance: random.Random, executor: Executor, run_id: str, epoch: int
) -> None:
    """Deliver or end with an epoch that is over; nobody may listen."""
    now = executor.context.env.now()
    words: list[Deliver | Finish] = [
        Deliver(epoch=epoch, outputs=(StepRecorded(step="ghost", value=None, at=now),), at=now),
        Finish(epoch=epoch, outcome=Outcome.SUCCEEDED, at=now),
    ]
    try:
        await executor.ask(run_id, chance.choice(words))
    except Fenced:
        return
    raise Violation("an activation that is over was listened to")


async def drain(chance: random.Random, executor: Executor, env: SimEnv) -> None:
    """Let go of everything that runs, and end a little later."""
    await trio.sleep(chance.uniform(0, 3))
    executor.drain()
    await trio.sleep(chance.choice([0, 0.01, 0.5, 2]))
    env.kill()
