"""Entries in processes that put a secret wherever they can, for tests that look for it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from perdure import PluginError, Retry, RunContext, Secret, SyncRunContext, entry, plugin
from perdure.runtime.plugins.run_messages import Log
from perdure.runtime.process.messages import PIECE

log = logging.getLogger("somebody.elses")
CHUNK = 64 << 10  # bytes of output that are read at once


def printed(*parts: str, to: int = 1) -> None:
    """Write parts of a line one after the other, so that each is read alone."""
    for part in parts:
        os.write(to, part.encode())
        time.sleep(0.05)


def print_everywhere(token: str) -> None:
    """Put a secret on standard output and error, in one piece and in several."""
    half = len(token) // 2
    print("whole", token, {"t": token}, flush=True)  # noqa: T201 - the point
    printed("split ", token[:half], token[half:], "\n")
    printed(*token[:30], token[30:], "\n", to=2)
    for before in range(-min(len(token), 20), 1):  # wherever the output is cut
        os.write(1, b"x" * (CHUNK + before) + token.encode() + b"\n")
    for length in (CHUNK - half, 3 * CHUNK - half, 5 * CHUNK):  # lines that are too long
        os.write(1, b"y" * length + token.encode() * 3 + b"z" * CHUNK + b"\n")
    often = 50_000 // len(token) + 1  # most of it is redacted, so that its end comes into view
    os.write(2, token.encode() * often)
    os.write(2, token[:half].encode() + b"\n")
    os.write(2, b"no end " + token.encode())


def fail(token: str) -> None:
    """Raise something with a secret in it."""
    raise ValueError(f"no number: {token!r}")


def raised(token: str) -> Exception:
    """Give an exception that was raised with a secret in it."""
    try:
        fail(token)
    except ValueError as error:
        return error
    raise AssertionError


async def say_everywhere(run: Any, token: str, wait: Callable[[Any], Any]) -> None:
    """Put a secret wherever people can read it; ``wait`` makes awaited what is not."""
    encoded = b64encode(f"user:{token}".encode()).decode()
    run.log(f"logged {token} {encoded} " + "x" * 2000)
    run.log("x" * 1995 + token, level=token)
    run.status("stage", f"stage {token}")
    run.progress(0.5, f"progress {token}")
    log.warning("logging %s %r", token, {"token": token}, extra={"custom": [token]})
    try:
        fail(token)
    except ValueError:
        run.log(traceback.format_exc())
        traceback.print_exc()
        log.exception("caught", stack_info=True)
    more: dict[str, Any] = {
        "description": f"of {token}",
        "metadata": {token: token, "password": "hunter2"},
    }
    await wait(run.export_text(f"text {token}", **more))
    await wait(run.export_url(f"https://example.org/?t={quote(token, safe='')}", **more))
    await wait(run.export_binary_url(f"blob:{encoded}", **more))
    await wait(run.export_json({"deep": [{"a": token}], token: 1, "max_tokens": 5}, **more))
    await wait(run.export_bytes(b"harmless", **more))
    await wait(run.export_bytes(bytes(100_000), **more))


async def as_it_is(value: Any) -> Any:
    """Give a value that was not awaited."""
    return value


async def awaited(value: Any) -> Any:
    """Wait for a value."""
    return await value


def refused_calls(run: Any, token: str) -> dict[str, Callable[[], Any]]:
    """Give what an entry may not do with a secret."""
    data = b"\xff" * (PIECE - 5) + token.encode() + b"\xff" * PIECE
    return {
        "step_result": lambda: run.step("s", lambda: {"a": ["b", token]}),
        "step_name": lambda: run.sleep(1, f"s-{token}"),
        "question": lambda: run.ask({"text": f"is {token} right?"}),
        "child_args": lambda: run.start("caged", "plain", {"text": token}),
        "unknown_child": lambda: run.start("nobody", "knows", {"token": token}),
        "export_key": lambda: run.export_text("text", key=token),
        "bytes_key": lambda: run.export_bytes(b"text", key=token),
        "export_binary": lambda: run.export_binary(b"\xff" + token.encode()),
        "export_bytes": lambda: run.export_bytes(data),
        "few_bytes": lambda: run.export_bytes(token.encode()),
    }


def plugin_error(ctx: SyncRunContext, token: str) -> None:
    """Raise an error of the entry's own."""
    raise PluginError(token, f"with {token}", details={"t": [token], "token": "x"})


def odd_details(ctx: SyncRunContext, token: str) -> None:
    """Raise an error with details that cannot be said."""
    raise PluginError("MINE", token, details={token: object()})


def envelope(ctx: SyncRunContext, token: str) -> Any:
    """Return an error."""
    return {"ok": False, "error": {"code": "C", "message": token, "details": {"t": token}}}


def group(ctx: SyncRunContext, token: str) -> None:
    """Raise several errors."""
    raise ExceptionGroup(token, [ValueError(token), KeyError(token)])


def leave(ctx: SyncRunContext, token: str) -> None:
    """Exit with it."""
    sys.exit(token)


def crash(ctx: SyncRunContext, token: str) -> None:
    """Print a traceback and be gone."""
    traceback.print_exception(raised(token))
    os._exit(3)


def crash_in_thread(ctx: SyncRunContext, token: str) -> None:
    """Fail in a thread, whose traceback Python prints, and die."""
    thread = threading.Thread(target=fail, args=(token,))
    thread.start()
    thread.join()
    os.kill(os.getpid(), 9)


def no_message(ctx: SyncRunContext, token: str) -> None:
    """Say what is no message, past the kit."""
    os.write(int(os.environ["PERDURE_WRITE_FD"]), b'{"say": "' + token.encode() + b'"}\n')
    time.sleep(30)


def another_run(ctx: SyncRunContext, token: str) -> None:
    """Speak of a run that is called like it."""
    port: Any = ctx.run._port
    port._talk.say(Log(text="x", run_id=token))
    time.sleep(30)


def unrecordable(ctx: SyncRunContext, token: str) -> Any:
    """Return what cannot be said."""
    return {token: {1, 2}, "x": object()}


def step(ctx: SyncRunContext, token: str) -> None:
    """Fail in a step, twice."""
    ctx.run.step("s", fail, token, retry=Retry(tries=2, delay=0.01))


def cut_off(ctx: SyncRunContext, token: str) -> None:
    """Raise an error whose message is cut in the middle of it."""
    raise ValueError("x" * 1970 + token)


FAILURES: dict[str, Callable[[SyncRunContext, str], Any]] = {
    fn.__name__: fn
    for fn in (
        plugin_error,
        odd_details,
        envelope,
        group,
        leave,
        crash,
        crash_in_thread,
        no_message,
        another_run,
        unrecordable,
        step,
        cut_off,
    )
}


@plugin("caged", version="1")
class Caged:
    """Entries with secrets."""

    @entry
    def everywhere(self, ctx: SyncRunContext, token: Secret) -> dict[str, Any]:
        """Say and print it wherever people can read it."""
        asyncio.run(say_everywhere(ctx.run, token, as_it_is))
        print_everywhere(token)
        return {"returned": token, "right": len(token)}

    @entry(where="process")
    async def async_everywhere(self, ctx: RunContext, token: Secret) -> dict[str, Any]:
        """Say and print it wherever people can read it."""
        await say_everywhere(ctx.run, token, awaited)
        print_everywhere(token)
        return {"returned": token, "right": len(token)}

    @entry
    def fails(self, ctx: SyncRunContext, token: Secret, how: str) -> Any:
        """Fail with it."""
        return FAILURES[how](ctx, token)

    @entry
    def refused(self, ctx: SyncRunContext, token: Secret, what: str) -> None:
        """Do something that is refused."""
        refused_calls(ctx.run, token)[what]()

    @entry
    def asks(self, ctx: SyncRunContext, token: Secret) -> str:
        """Ask, and return what was answered."""
        return str(ctx.run.ask("which?"))

    @entry
    def passes_on(self, ctx: SyncRunContext, token: Secret) -> str:
        """Pass it on to a child that takes it as a secret."""
        return ctx.run.start("caged", "child", {"token": token})

    @entry
    def child(self, ctx: SyncRunContext, token: Secret) -> int:
        """Say that it came."""
        print("got", token)  # noqa: T201 - the point
        return len(token)

    @entry
    def plain(self, ctx: SyncRunContext, text: str = "") -> str:
        """Take nothing that is secret."""
        return text

    @entry
    def looks_around(self, ctx: SyncRunContext, token: Secret) -> list[str]:
        """Tell where it is in what others can see of the processes, and wait to be looked at."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            for name in ("cmdline", "environ"):
                try:
                    data = (folder / name).read_bytes()
                except OSError:
                    continue
                if token.encode() in data:
                    found.append(name)
        ctx.run.status("looking")
        ctx.run.ask("seen enough?")
        return found

    @entry
    def lingers(self, ctx: SyncRunContext, token: Secret) -> int:
        """Leave a thread behind that goes on printing it, and speaking of the run."""

        def late() -> None:
            for _ in range(100):
                time.sleep(0.01)
                print("late", token, flush=True)  # noqa: T201 - the point
                ctx.run.log(f"late {token}")

        threading.Thread(target=late, daemon=True).start()
        return os.getpid()

    @entry
    def beside(self, ctx: SyncRunContext) -> int:
        """Be executed after another, for a while."""
        time.sleep(0.3)
        return os.getpid()
