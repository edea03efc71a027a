"""Entries that put out bytes, from a plain function and from an async one, for tests."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from perdure import PluginError, RunContext, SyncRunContext, entry, plugin
from perdure.runtime.process.messages import PIECE


def content(size: int) -> bytes:
    """Give so many bytes that are told apart by where they stand."""
    return b"".join(b"%015d\n" % number for number in range(size // 16 + 1))[:size]


def in_pieces(data: bytes, length: int = 10_000) -> Iterator[bytes]:
    """Give bytes piece by piece."""
    for start in range(0, len(data), length):
        yield data[start : start + length]


async def awaited(data: bytes, length: int = 10_000) -> AsyncIterator[bytes]:
    """Give bytes piece by piece, and wait for each."""
    for piece in in_pieces(data, length):
        await asyncio.sleep(0)
        yield piece


FORMS: dict[str, Any] = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "iterator": in_pieces,
    "awaited": awaited,
    "single": lambda data: in_pieces(data, 1),
    "text": lambda _: "text",
    "texts": lambda _: ["text"],
    "nothing": lambda _: None,
}


def say(**message: Any) -> None:
    """Say something to the server, past the kit."""
    os.write(int(os.environ["PERDURE_WRITE_FD"]), msgspec.json.encode(message) + b"\n")


@plugin("filing", version="1")
class Filing:
    """Each entry puts out bytes in a way of its own."""

    @entry
    def plain(self, ctx: SyncRunContext, size: int, form: str = "bytes", times: int = 1) -> None:
        """Export bytes from a plain function."""
        for _ in range(times):
            data = FORMS[form](content(size))
            ctx.run.export_bytes(data, "a file", mime="x/y", metadata={"m": 1})

    @entry(where="process")
    async def waiting(
        self, ctx: RunContext, size: int, form: str = "bytes", times: int = 1
    ) -> None:
        """Export bytes from an async function, several at once."""
        await asyncio.gather(
            *(
                ctx.run.export_bytes(
                    FORMS[form](content(size)), "a file", mime="x/y", metadata={"m": 1}
                )
                for _ in range(times)
            )
        )

    @entry
    def file(self, ctx: SyncRunContext, path: str) -> None:
        """Export a file that is open."""
        with Path(path).open("rb") as opened:
            ctx.run.export_bytes(opened, "a file")

    @entry(where="process")
    async def async_file(self, ctx: RunContext, path: str) -> None:
        """Export a file that is open."""
        with Path(path).open("rb") as opened:  # noqa: ASYNC230 - it is small
            await ctx.run.export_bytes(opened, "a file")

    @entry
    def caught(self, ctx: SyncRunContext, size: int) -> str:
        """Hear of a refusal, and go on."""
        try:
            ctx.run.export_bytes(in_pieces(content(size)))
        except PluginError as error:
            ctx.run.export_bytes(b"small")
            return error.code
        return "fine"

    @entry
    def keyed(self, ctx: SyncRunContext) -> bool:
        """Export under a key twice; the second time nothing is asked for."""
        first = ctx.run.export_bytes(content(100_000), key="k")

        asked = iter([b"other"])
        return ctx.run.export_bytes(asked, key="k") == first and next(asked) == b"other"

    @entry
    def breaks_off(self, ctx: SyncRunContext) -> str:
        """Fail in the middle of the bytes, and go on."""

        def breaking() -> Iterator[bytes]:
            yield content(300_000)
            raise KeyError("broken")

        with suppress(KeyError):
            ctx.run.export_bytes(breaking())
        ctx.run.export_bytes(content(100_000))
        return "went on"

    @entry(where="process")
    async def async_breaks_off(self, ctx: RunContext) -> str:
        """Fail, and be cancelled, in the middle of the bytes, and go on."""

        async def breaking() -> AsyncIterator[bytes]:
            yield content(300_000)
            raise KeyError("broken")

        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield content(300_000)
                await asyncio.sleep(0.01)

        with suppress(KeyError):
            await ctx.run.export_bytes(breaking())
        with suppress(TimeoutError):
            await asyncio.wait_for(ctx.run.export_bytes(endless()), 0.1)
        await ctx.run.export_bytes(content(100_000))
        return "went on"

    @entry
    def slow(self, ctx: SyncRunContext) -> None:
        """Never come to the end of the bytes."""

        def endless() -> Iterator[bytes]:
            ctx.run.status("sending")
            while True:
                yield content(300_000)
                time.sleep(0.01)

        ctx.run.export_bytes(endless())

    @entry
    def dies(self, ctx: SyncRunContext) -> None:
        """Die in the middle of the bytes."""

        def deadly() -> Iterator[bytes]:
            yield content(1_000_000)
            os.kill(os.getpid(), signal.SIGKILL)

        ctx.run.export_bytes(deadly())

    @entry
    def says(self, ctx: SyncRunContext, messages: list[dict[str, Any]]) -> None:
        """Say what the test wants, past the kit, with time between for the answer."""
        for message in messages:
            say(**message)
            time.sleep(0.2)
        time.sleep(30)

    @entry
    def says_at_once(
        self,
        ctx: SyncRunContext,
        messages: list[dict[str, Any]],
        later: list[dict[str, Any]],
    ) -> None:
        """Say what the test wants, past the kit, all at once; a little later something more."""
        for message in messages:
            say(**message)
        time.sleep(0.3)
        for message in later:
            say(**message)
        ctx.run.status("said")
        time.sleep(30)

    @entry
    def too_much(self, ctx: SyncRunContext, size: int) -> str:
        """Export bytes as they are, of any number."""
        try:
            ctx.run.export_binary(content(size))
        except PluginError as error:
            return error.code
        return "fine"

    @entry
    def signals(self, ctx: SyncRunContext) -> None:
        """Be interrupted by signals all the time while bytes are on their way."""
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        try:
            ctx.run.export_bytes(content(10 * PIECE))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    @entry(where="thread")
    def thread(self, ctx: SyncRunContext) -> bool:
        """Give the pieces in the thread, not in the event loop."""
        here: list[bool] = []

        def pieces() -> Iterator[bytes]:
            for piece in in_pieces(content(100_000)):
                ctx.run.check_cancelled()
                here.append(threading.current_thread() is threading.main_thread())
                yield piece

        ctx.run.export_bytes(pieces(), "from a thread")
        return not any(here)
