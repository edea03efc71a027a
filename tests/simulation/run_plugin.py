"""What the simulated server executes: entries that do a bit of everything."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import trio

from perdure import PluginError, Retry, RunContext, Secret, entry, plugin
from tests.runtime.secrets.canary import CANARY
from tests.simulation.world import Violation

BODIES: Final[Counter[str]] = Counter()  # how often each step was begun, outside of any process
DONE: Final[set[str]] = set()  # steps whose value an entry has got
REPEATED: Final[list[str]] = []  # steps that were begun again after that
TRIES: Final = 9
FOR_EVER: Final = 1_000_000
CHILDREN: Final[list[tuple[str, dict[str, Any]]]] = [
    ("stay", {"token": CANARY}),
    ("stay", {"deaf": True}),
    ("stay", {}),
]


@plugin("sim", limit=4)
class Simulated:
    """The one plugin of the simulated server."""

    @entry
    async def work(
        self,
        ctx: RunContext,
        steps: int,
        nap: float,
        token: Secret,
        *,
        fails: bool = False,
        deaf: bool = False,
    ) -> str:
        """Do steps with exports before and after them, in two tasks at once."""
        if token != CANARY:
            raise Violation(f"a secret came back as {token!r}")
        ctx.run.log(f"begun with {token}")
        await ctx.run.export_text(f"begun with {token}")

        async def one(number: int) -> int:
            BODIES[f"{ctx.run.id}/{number}"] += 1
            if f"{ctx.run.id}/{number}" in DONE:
                REPEATED.append(f"{ctx.run.id}/{number}")
            await trio.sleep(nap)
            if fails and number == 1 and BODIES[f"{ctx.run.id}/{number}"] % 3:
                raise OSError(f"not this time, {token}")
            return number

        async def aside() -> None:
            for number in range(steps):
                await ctx.run.export_text(f"aside {number}", key=f"aside-{number}")
                ctx.run.progress(number / steps, f"aside, {token}")
                await trio.sleep(nap / 2)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(aside)
            for number in range(steps):
                with trio.CancelScope(shield=deaf):  # nothing but the end of the step ends it
                    await ctx.run.step(
                        f"s{number}", one, number, retry=Retry(tries=TRIES, delay=0.1)
                    )
                    DONE.add(f"{ctx.run.id}/{number}")
                await ctx.run.export_text("again")  # equal items: only their count tells
        await ctx.run.sleep(nap)
        return "done"

    @entry
    async def stumble(self, ctx: RunContext) -> None:
        """Fail, after having said something."""
        await ctx.run.export_text("before")
        raise PluginError("STUMBLED", "as ever")

    @entry
    async def wonder(self, ctx: RunContext, questions: int, nap: float) -> list[Any]:
        """Ask several questions at once, sleep meanwhile, and return the answers."""
        answers: list[Any] = [None] * questions

        async def one(number: int) -> None:
            answers[number] = await ctx.run.ask({"number": number}, name=f"q{number}")
            await ctx.run.export_json({"heard": answers[number]}, key=f"heard-{number}")

        async with trio.open_nursery() as nursery:
            for number in range(questions):
                nursery.start_soon(one, number)
            await ctx.run.sleep(nap, name="nap")
        return answers

    @entry
    async def family(self, ctx: RunContext, children: int, nap: float) -> None:
        """Start children, most of which never end by themselves, and wait to be canceled."""
        for number in range(children):
            entry_id, args = CHILDREN[number]
            await ctx.run.start("sim", entry_id, args, name=f"child-{number}")
            await ctx.run.sleep(nap, name=f"nap-{number}")
        await ctx.run.sleep(FOR_EVER, name="wait")

    @entry
    async def stay(
        self, ctx: RunContext, *, deaf: bool = False, token: Secret | None = None
    ) -> None:
        """Wait to be canceled, or only to be interrupted."""
        ctx.run.status("staying", f"with {token}")
        if deaf:
            await trio.sleep(FOR_EVER)
        await ctx.run.sleep(FOR_EVER)
