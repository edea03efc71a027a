"""Clients of the simulated server: they create, watch, answer, cancel and try again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from perdure.actors.errors import AnsweredOtherwise, NoSuchQuestion, NotNow, Refusal
from perdure.actors.run.events import (
    RUN_EVENTS,
    Answered,
    CancelRequested,
    ChildStarted,
    RunCreated,
    RunEnded,
)
from perdure.actors.run.stream import stream_of
from perdure.eventlog.store import Bounds
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.runs.requests import AnswerRun, CancelRun, CreateRun, GetRun, RetryRun
from tests.runtime.secrets.canary import CANARY
from tests.simulation.world import Violation

if TYPE_CHECKING:
    import random

    from perdure.runtime.runs.answers import RunAnswer
    from perdure.runtime.runs.operations import Runs
    from tests.simulation.run_world import RunWorld

ALL: Final = Bounds(records=1 << 30, bytes=1 << 40)
ENTRIES: Final = ["work"] * 4 + ["wonder"] * 2 + ["family"] * 3 + ["stumble", "stay"]
WAIT_TO_BE_CANCELED: Final = {"family", "stay"}


def events_of(world: RunWorld, run_id: str) -> list[Any]:
    """The events of a run that are on disk."""
    return [RUN_EVENTS.decode(r) for r in world.disk.read_stream(stream_of(run_id), 0, ALL).records]


def all_runs(world: RunWorld) -> list[str]:
    """The runs that are on disk."""
    records = world.disk.records
    return [r.stream.removeprefix("run/") for r in records if r.name == RunCreated.event_name]


def open_runs(world: RunWorld) -> list[str]:
    """Those that have not ended."""
    state = world.disk.stream_state
    return [run_id for run_id in all_runs(world) if not state(stream_of(run_id)).sealed]


async def use_a_run(world: RunWorld, number: int) -> None:
    """Create a run, maybe twice at once; see to it; maybe try again what has ended."""
    chance = world.chance
    await trio.sleep(chance.choice([0, 0, 0.1, 1]))
    entry_id = chance.choice(ENTRIES)
    request = CreateRun(
        plugin_id="sim",
        entry_id=entry_id,
        args=arguments(chance, entry_id),
        idempotency_key=f"key-{number}",
        timeout=chance.choice([None, None, 5.0]),
        mode=chance.choice(["async", "async", "sync"]),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(create, world, request)
        if chance.random() < 0.5:
            nursery.start_soon(create, world, request)
    run_id = world.keys[f"key-{number}"]
    await attend(world, run_id, entry_id)
    if chance.random() < 0.3:
        await attend(world, await retry(world, run_id), entry_id)


def arguments(chance: random.Random, entry_id: str) -> dict[str, Any]:
    """Draw the arguments of an entry."""
    nap = chance.choice([0, 0.01, 0.5])
    match entry_id:
        case "work":
            fails, deaf = chance.random() < 0.3, chance.random() < 0.3
            work = {"steps": chance.randrange(4), "nap": nap, "fails": fails, "deaf": deaf}
            return {**work, "token": CANARY}
        case "wonder":
            return {"questions": chance.randrange(1, 3), "nap": nap}
        case "family":
            return {"children": chance.randrange(4), "nap": nap}
        case "stay":
            return {"deaf": chance.random() < 0.5}
        case _:
            return {}


async def create(world: RunWorld, request: CreateRun) -> None:
    """Create a run; a key stands for one."""
    run = (await world.call(lambda server: server.create(LOCAL, request)))["run"]
    if world.keys.setdefault(str(request.idempotency_key), run["run_id"]) != run["run_id"]:
        raise Violation(f"{request.idempotency_key} stands for two runs")
    world.accepted.add(run["run_id"])


async def attend(world: RunWorld, run_id: str, entry_id: str) -> None:
    """Watch a run, answer its questions, cancel it now or never."""
    chance = world.chance
    async with trio.open_nursery() as nursery:
        for _ in range(chance.randrange(3)):
            nursery.start_soon(watch, world, run_id)
        if entry_id == "wonder":
            for client in range(chance.randrange(1, 5)):
                nursery.start_soon(answer, world, run_id, client)
        for _ in range(1 if entry_id in WAIT_TO_BE_CANCELED else chance.choice([0, 0, 1, 2])):
            nursery.start_soon(cancel, world, run_id)


async def watch(world: RunWorld, run_id: str) -> None:
    """Look at a run now and then."""
    for _ in range(world.chance.randrange(5)):
        await get(world, run_id)
        await trio.sleep(world.chance.choice([0, 0.01, 0.2]))


async def get(world: RunWorld, run_id: str) -> Any:
    """Read a run's record."""
    return (await world.call(lambda server: server.get(LOCAL, GetRun(run_id=run_id))))["run"]


async def ended(world: RunWorld, run_id: str) -> Any:
    """Wait for the end of a run and read its record."""

    async def wait(server: Runs) -> RunAnswer:
        await server._executor.end_of(run_id)
        return await server.get(LOCAL, GetRun(run_id=run_id))

    run = (await world.call(wait))["run"]
    if run["finished_at"] is None:
        raise Violation("the end of a run was announced and is not there")
    return run


async def cancel(world: RunWorld, run_id: str) -> None:
    """Cancel a run after a while; the answer shows it."""
    await trio.sleep(world.chance.choice([0, 0.01, 0.3, 1.5]))
    request = CancelRun(run_id=run_id, force=world.chance.random() < 0.2)
    run = (await world.call(lambda server: server.cancel(LOCAL, request)))["run"]
    if not run["cancel_requested"] and run["finished_at"] is None:
        raise Violation("a cancel request was answered and is not there")


async def retry(world: RunWorld, run_id: str) -> str:
    """Wait for the end of a run and try it again."""
    before = await ended(world, run_id)
    secrets = {"token": CANARY} if before["entry_id"] == "work" else {}
    request = RetryRun(run_id=run_id, secrets=secrets)
    run = (await world.call(lambda server: server.retry(LOCAL, request)))["run"]
    world.accepted.add(run["run_id"])
    return str(run["run_id"])


async def answer(world: RunWorld, run_id: str, client: int) -> None:
    """Answer what a run asks, in this client's own way, until it has ended."""
    while (run := await get(world, run_id))["finished_at"] is None:
        for question_id in run["questions"]:
            mine = {"client": client}
            request = AnswerRun(run_id=run_id, question_id=question_id, answer=mine)
            try:
                await world.call(lambda server, r=request: server.answer(LOCAL, r))  # type: ignore[misc]
            except Refusal as refusal:
                check_refusal(world, run_id, question_id, refusal)
            else:
                world.told[run_id, question_id] = mine
        await trio.sleep(world.chance.choice([0, 0.1, 0.3]))


def check_refusal(world: RunWorld, run_id: str, question_id: str, refusal: Refusal) -> None:
    """Whoever is refused can rely on the cause: it is on disk."""
    events = events_of(world, run_id)
    match refusal:
        case AnsweredOtherwise():
            cause = any(isinstance(e, Answered) and e.question_id == question_id for e in events)
        case NoSuchQuestion() | NotNow():
            cause = any(isinstance(e, RunEnded | CancelRequested) for e in events)
        case _:
            cause = False
    if not cause:
        raise Violation(f"an answer was refused without a durable cause: {refusal}")


async def keep_tidy(world: RunWorld) -> None:
    """Tidy up now and then: what nobody attends may hold the only place that others wait for."""
    while True:
        await trio.sleep(20)
        await tidy_up(world)


async def tidy_up(world: RunWorld) -> None:
    """Cancel what nobody attends: attempts whose birth was not heard of, and their like.

    Children of a canceled parent are left alone: to end them is not the clients' business.
    """
    alive = open_runs(world)
    left_alone: set[str] = set(world.accepted)
    for parent in all_runs(world) if alive else ():
        events = events_of(world, parent)
        if parent in alive or any(isinstance(event, CancelRequested) for event in events):
            left_alone |= {e.child_run_id for e in events if isinstance(e, ChildStarted)}
    for run_id in alive:
        if run_id not in left_alone:
            await cancel(world, run_id)
