"""The same bodies inline, in a thread, and in a process: as plain functions and on asyncio."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from perdure import (
    PluginError,
    Retry,
    RunCancelled,
    RunContext,
    Secret,
    StepError,
    SyncRunContext,
    entry,
    plugin,
)
from tests.runtime.execution.retried_bodies import AWAITED, INLINE, PLAIN, Place, RetriedBodies
from tests.runtime.execution.wrong_calls import wrong_calls

log = logging.getLogger("somebody.elses")
PLACES: Final = ("inline", "threaded", "plain", "awaited")


def driven(body: Coroutine[Any, Any, Any]) -> Any:
    """Execute a body that never really waits."""
    try:
        body.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")


class Bodies(RetriedBodies):
    """What the tests let a run do."""

    async def who(self, run: Any, at: Place) -> list[Any]:
        """Tell who the run is, also from a thread."""
        told: list[str] = []
        thread = threading.Thread(target=lambda: told.append(run.id))
        thread.start()
        thread.join()
        return [run.id, *told, run.attempt, run.root_id, run.trace_id]

    async def reports(self, run: Any, at: Place) -> None:
        """Report a stage, then progress, and wait to be looked at."""
        run.status("loading", "the first part")
        await at.pause(0.3)
        run.progress(0.4, "x")
        await at.pause(0.3)
        await at.wait(run.ask("seen?"))

    async def nothing(self, run: Any, at: Place) -> None:
        """Say nothing at all."""

    async def exports(self, run: Any, at: Place) -> None:
        """Export one item of each type."""
        text = await at.wait(run.export_text("a text", "described", mime="text/plain"))
        await at.wait(run.export_url("https://example.org", "described"))
        await at.wait(run.export_binary_url("blob:1", "described"))
        await at.wait(run.export_json({"a": 1}, "described"))
        await at.wait(run.export_id(text, "described"))
        await at.wait(run.export("text", "by name", "described"))

    async def refers(self, run: Any, at: Place, ref: str) -> None:
        """Export a reference."""
        await at.wait(run.export_id(ref, "there"))

    async def claims(self, run: Any, at: Place, ref: str) -> None:
        """Call an item of another run the result."""
        run.result(ref)

    async def obeys(self, run: Any, at: Place, how: str) -> None:
        """Look for a cancel request, and obey."""
        run.status("waiting")
        while not run.cancelled:
            await at.pause(0.01)
        run.log(f"seen at {time.time_ns()}")
        try:
            run.check_cancelled()
        except RunCancelled as error:
            if how == "group":
                raise ExceptionGroup("wrapped", [error]) from None
            if how == "step":
                await at.wait(run.step("s", self.stopped(run, at)))
            raise

    def stopped(self, run: Any, at: Place) -> Callable[[], Any]:
        """Give a step that obeys."""
        if at is PLAIN:
            return run.check_cancelled  # type: ignore[no-any-return]

        async def body() -> None:
            run.check_cancelled()

        return body

    async def binary(self, run: Any, at: Place, size: int) -> str:
        """Export bytes as they are."""
        try:
            await at.wait(run.export_binary(bytes(size)))
        except PluginError as error:
            return error.code
        return "fine"

    async def logs(self, run: Any, at: Place) -> str:
        """Log in every way, and export."""
        run.log("said")
        log.info("logged %s", "so")
        log.debug("too quiet")
        try:
            os.environ["LOST"]
        except KeyError:
            log.exception("failed")
        thread = threading.Thread(target=log.warning, args=("from a thread",))
        thread.start()
        thread.join()
        await at.wait(run.export_text("text"))
        await at.wait(run.export_bytes(bytes(70_000)))
        await at.pause(0.2)
        return "done"

    async def takes(self, run: Any, at: Place) -> None:
        """Ask for a file, and export it."""
        url = await at.wait(run.ask("a file, please"))
        await at.wait(run.export_binary_url(url, "uploaded"))

    async def fails(self, run: Any, at: Place) -> None:
        """Export, and fail."""
        await at.wait(run.export_text(f"attempt {run.attempt}"))
        raise PluginError("AGAIN", "try again", retriable=True)

    async def fails_in_a_group(self, run: Any, at: Place) -> None:
        """Fail as a task group does."""
        raise ExceptionGroup("tasks", [ExceptionGroup("more", [PluginError("MINE", "no")])])

    async def missteps(self, run: Any, at: Place) -> list[Any]:
        """Tell what is raised by a step that fails, and by one that is used twice."""

        def fails() -> None:
            raise PluginError("MINE", "no", retriable=True)

        async def fails_async() -> None:
            fails()

        seen: list[Any] = []
        for _ in range(2):
            try:
                await at.wait(run.step("s", fails if at is PLAIN else fails_async))
            except (PluginError, StepError) as error:
                seen.append([type(error).__name__, str(error), getattr(error, "retriable", None)])
        return seen

    async def every_call(self, run: Any, at: Place) -> dict[str, Any]:
        """Make each call that ctx.run offers, and tell what it gave."""
        step = self.body(at, lambda: [1, "two"])
        text = await at.wait(run.export_text("t", "described", key="k", metadata={"m": 1}))
        said: dict[str, Any] = {
            "cancelled": run.cancelled,
            "check_cancelled": run.check_cancelled(),
            "progress": run.progress(1, "done"),
            "status": run.status("stage", "message"),
            "log": run.log("line", "warning"),
            "export_text": text,
            "export_url": await at.wait(run.export_url("https://example.org", mime="a/b")),
            "export_binary_url": await at.wait(run.export_binary_url("https://example.org/b")),
            "export_binary": await at.wait(run.export_binary(b"few")),
            "export_bytes": await at.wait(run.export_bytes([b"pie", bytearray(b"ces")])),
            "export_json": await at.wait(run.export_json({"a": [None]})),
            "export_id": await at.wait(run.export_id(text)),
            "export": await at.wait(run.export("binary", "AP8=")),
            "result": run.result(text),
            "step": await at.wait(run.step("s", step, retry=Retry(tries=2))),
            "sleep": await at.wait(run.sleep(0)),
            "ask": await at.wait(run.ask({"text": "which?"}, name="asked")),
        }
        child = await at.wait(run.start("anywhere", "inline", {"what": "nothing"}))
        return {**said, "start": isinstance(child, str)}

    async def refusals(self, run: Any, at: Place) -> dict[str, list[str]]:
        """Make calls that are wrong in themselves, and tell what each raises."""
        step = self.body(at, lambda: 1)
        await at.wait(run.step("used", step))
        return {name: await self.raised(call, at) for name, call in wrong_calls(run, step).items()}

    async def unrecordable(self, run: Any, at: Place) -> list[str]:
        """Return from a step what cannot be recorded."""
        return await self.raised(lambda: run.step("s", self.body(at, object)), at)

    async def keeps_no_secret(self, run: Any, at: Place, token: str) -> dict[str, list[str]]:
        """Put a secret where it is refused."""
        calls: dict[str, Callable[[], Any]] = {
            "bytes": lambda: run.export_bytes([token.encode()]),
            "binary": lambda: run.export_binary(token.encode()),
            "key": lambda: run.export_text("text", key=token),
            "name": lambda: run.sleep(0, name=token),
            "question": lambda: run.ask(token),
            "result": lambda: run.step("s", self.body(at, lambda: token)),
        }
        return {name: await self.raised(call, at) for name, call in calls.items()}

    async def waits(self, run: Any, at: Place, how: str) -> None:
        """Wait until it is canceled, and tell what that raises."""

        def fails() -> None:
            raise ValueError("not yet")

        patient = Retry(tries=9, delay=3600, longest=3600)
        calls: dict[str, Callable[[], Any]] = {
            "sleep": lambda: run.sleep(3600),
            "ask": lambda: run.ask("which?"),
            "retry": lambda: run.step("s", self.body(at, fails), retry=patient),
            "nested": lambda: run.step("s", self.nested(run, at)),
        }
        run.status("waiting")
        run.log(" ".join(await self.raised(calls[how], at)))
        run.check_cancelled()

    def nested(self, run: Any, at: Place) -> Callable[[], Any]:
        """Give a step that sleeps."""
        return lambda: run.sleep(3600)

    async def late(self, run: Any, at: Place) -> None:
        """Take longer than it may."""
        run.status(f"pid {os.getpid()}")
        await at.pause(1000)


@plugin("anywhere", version="1")
class Anywhere:
    """The same, in four places."""

    @entry
    async def inline(self, ctx: RunContext, what: str, args: dict[str, Any] | None = None) -> Any:
        """Execute a body inline."""
        return await getattr(Bodies(), what)(ctx.run, INLINE, **(args or {}))

    @entry
    def plain(self, ctx: SyncRunContext, what: str, args: dict[str, Any] | None = None) -> Any:
        """Execute a body as a plain function in a process."""
        return driven(getattr(Bodies(), what)(ctx.run, PLAIN, **(args or {})))

    @entry(where="thread")
    def threaded(self, ctx: SyncRunContext, what: str, args: dict[str, Any] | None = None) -> Any:
        """Execute a body as a plain function in a thread."""
        return driven(getattr(Bodies(), what)(ctx.run, PLAIN, **(args or {})))

    @entry(where="process")
    async def awaited(self, ctx: RunContext, what: str, args: dict[str, Any] | None = None) -> Any:
        """Execute a body on asyncio in a process."""
        return await getattr(Bodies(), what)(ctx.run, AWAITED, **(args or {}))

    @entry(where="process")
    async def waits_for_much(self, ctx: RunContext) -> list[Any]:
        """Have many calls open at once."""
        asked = [asyncio.create_task(ctx.run.ask(number)) for number in range(40)]
        await asyncio.gather(*(ctx.run.sleep(0.01) for _ in range(20)))
        return await asyncio.gather(*asked)

    @entry(where="process")
    async def gives_up(self, ctx: RunContext) -> str:
        """Ask, and do not wait for the answer."""
        try:
            async with asyncio.timeout(0.05):
                await ctx.run.ask("is anybody there?")
        except TimeoutError:
            return "gave up"
        return "answered"

    @entry
    def spins(self, ctx: SyncRunContext) -> None:
        """Never yield."""
        ctx.run.status(f"pid {os.getpid()}")
        while True:
            pass

    @entry
    def leaves_a_fork(self, ctx: SyncRunContext) -> None:
        """Die, and leave a process behind that holds the pipe."""
        if os.fork() == 0:
            time.sleep(1000)
        os.kill(os.getpid(), 9)

    @entry
    def lingers(self, ctx: SyncRunContext) -> str:
        """Leave a thread behind that goes on speaking of the run."""

        def late() -> None:
            for number in range(100):
                time.sleep(0.01)
                try:
                    ctx.run.progress(0.9, "late")
                except RunCancelled:
                    print("refused", number)  # noqa: T201 - the point
                    return

        threading.Thread(target=late, daemon=True).start()
        return ctx.run.id


@plugin("guarded", version="1")
class GuardedAnywhere:
    """The same four places, with a secret."""

    @entry
    async def inline(self, ctx: RunContext, token: Secret) -> Any:
        """Try inline."""
        return await Bodies().keeps_no_secret(ctx.run, INLINE, token)

    @entry(where="thread")
    def threaded(self, ctx: SyncRunContext, token: Secret) -> Any:
        """Try in a thread."""
        return driven(Bodies().keeps_no_secret(ctx.run, PLAIN, token))

    @entry
    def plain(self, ctx: SyncRunContext, token: Secret) -> Any:
        """Try as a plain function in a process."""
        return driven(Bodies().keeps_no_secret(ctx.run, PLAIN, token))

    @entry(where="process")
    async def awaited(self, ctx: RunContext, token: Secret) -> Any:
        """Try on asyncio in a process."""
        return await Bodies().keeps_no_secret(ctx.run, AWAITED, token)
