"""The process side of an entry: what ``python -m perdure.child module:Class`` runs.

It finds the plugin's class, waits to be told to start an entry, executes it (a plain function as
it is, an async one on asyncio), says what came of it, and waits for the next. It ends when its
server is gone. It imports no trio and little else, so that it starts quickly.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
import traceback
from base64 import b64encode
from importlib import import_module
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from runtime.contract import ONCE, PluginError, Retry, RunCancelled, StepError, SyncRunContext
from runtime.plugin import declared

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runtime.plugin import Entry

Result = TypeVar("Result")


class Channel:
    """The two pipes to the server: requests are answered by number, whoever waits for them."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        """Read in a thread of its own: a busy entry hears of a cancel request all the same."""
        self._from_server = os.fdopen(read_fd, "rb")
        self._to_server = os.fdopen(write_fd, "wb", buffering=0)
        self._writing = threading.Lock()
        self._numbers = count(1)
        self._waiting: dict[int, Callable[[dict[str, Any]], None]] = {}
        self.starts: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.cancel_reason: str | None = None
        self.cancelled = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def say(self, say: str, **parts: Any) -> None:
        """Say something that is not answered."""
        line = msgspec.json.encode({"say": say, **parts}) + b"\n"
        with self._writing:
            self._to_server.write(line)

    def request(self, say: str, heard: Callable[[dict[str, Any]], None], **parts: Any) -> None:
        """Say something; ``heard`` is called with each answer, in the listening thread."""
        number = next(self._numbers)
        self._waiting[number] = heard
        self.say(say, id=number, **parts)

    def forget(self) -> None:
        """Begin anew for another run."""
        self._waiting.clear()
        self.cancelled.clear()
        self.cancel_reason = None

    def _listen(self) -> None:
        for line in self._from_server:
            self._hear(msgspec.json.decode(line))
        os._exit(0)  # the server is gone, or has no use for us any more

    def _hear(self, message: dict[str, Any]) -> None:
        if message.get("do") == "start":
            self.starts.put(message)
        elif message.get("do") == "cancel":
            self.cancel_reason = message.get("reason")
            self.cancelled.set()
        elif "call" in message:
            self._waiting[message["call"]](message)
        elif "re" in message:
            self._waiting.pop(message["re"])(message)


class RunBase:
    """What the run of a process has, however its entry waits."""

    def __init__(self, channel: Channel, about: Mapping[str, Any]) -> None:
        """Belong to one run."""
        self._channel = channel
        self.id: str = about["id"]
        self.attempt: int = about["attempt"]
        self.root_id: str = about["root_id"]
        self.trace_id: str | None = about["trace_id"]
        self.deadline: int | None = about["deadline"]
        self.attempt_token: str = about["attempt_token"]

    @property
    def cancelled(self) -> bool:
        """Whether the run was asked to end."""
        return self._channel.cancelled.is_set()

    def check_cancelled(self) -> None:
        """Raise RunCancelled if the run was asked to end."""
        if self.cancelled:
            raise RunCancelled(self._channel.cancel_reason)

    def progress(self, progress: float, message: str | None = None) -> None:
        """Report how far the work is, from 0.0 to 1.0."""
        is_number = isinstance(progress, int | float) and not isinstance(progress, bool)
        if not is_number or not 0.0 <= progress <= 1.0:
            raise PluginError("VALIDATION_ERROR", f"progress is from 0.0 to 1.0, not {progress!r}")
        self._channel.say("progress", progress=progress, message=message)

    def status(self, stage: str, message: str | None = None) -> None:
        """Name what the work is doing."""
        self._channel.say("status", stage=stage, message=message)

    def log(self, text: str, level: str = "info") -> None:
        """Log a line."""
        self._channel.say("log", text=text, level=level)

    def result(self, *items: str) -> None:
        """Mark these items, by id, as the run's result."""
        self._channel.say("result", items=list(items))


def _content(kind: str, content: Any) -> Any:  # noqa: ANN401 - as its kind says
    if kind == "binary" and isinstance(content, bytes):
        return b64encode(content).decode("ascii")
    return content


def value_of(answer: dict[str, Any]) -> Any:  # noqa: ANN401 - what was asked for
    """Give what was answered to a request, or raise the error."""
    error = answer.get("error")
    if error is None:
        return answer.get("value")
    if answer.get("cancelled"):
        raise RunCancelled(error.get("message"))
    raise PluginError(
        error.get("code", "PLUGIN_ERROR"), error.get("message", ""), details=error.get("details")
    )


def rule(retry: Retry) -> dict[str, Any]:
    """Give a retry rule as it is said."""
    return {
        "tries": retry.tries,
        "delay": retry.delay,
        "factor": retry.factor,
        "longest": retry.longest,
    }


class SyncRun(RunBase):
    """``ctx.run`` of a plain function: what is awaited inline simply takes its time here."""

    def _ask(self, say: str, **parts: Any) -> Any:  # noqa: ANN401 - what was asked for
        answers: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._channel.request(say, answers.put, **parts)
        return value_of(answers.get())

    def export_text(self, text: str, description: str | None = None, **more: Any) -> str:
        """Export a text; give the item's id."""
        return str(self._export("text", text, description, more))

    def export_url(self, url: str, description: str | None = None, **more: Any) -> str:
        """Export an address; give the item's id."""
        return str(self._export("url", url, description, more))

    def export_binary_url(self, url: str, description: str | None = None, **more: Any) -> str:
        """Export the address of bytes; give the item's id."""
        return str(self._export("binary_url", url, description, more))

    def export_binary(self, data: bytes | str, description: str | None = None, **more: Any) -> str:
        """Export a few bytes, or their base64; give the item's id."""
        return str(self._export("binary", data, description, more))

    def export_json(self, value: Any, description: str | None = None, **more: Any) -> str:  # noqa: ANN401
        """Export a JSON value; give the item's id."""
        return str(self._export("json", value, description, more))

    def export_id(self, ref: str, description: str | None = None, **more: Any) -> str:
        """Export a reference to an item that exists."""
        return str(self._export("id", ref, description, more))

    def _export(
        self,
        kind: str,
        content: Any,  # noqa: ANN401 - as its kind says
        description: str | None,
        more: Mapping[str, Any],
    ) -> Any:  # noqa: ANN401 - an item's id
        return self._ask(
            "export", type=kind, content=_content(kind, content), description=description, **more
        )

    def step(self, name: str, fn: Callable[..., Result], *args: Any, retry: Retry = ONCE) -> Result:
        """Do something once: its result is recorded and returned again after a crash."""
        answers: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._channel.request("step", answers.put, name=name, retry=rule(retry))
        while True:
            answer = answers.get()
            if "call" not in answer:
                value: Result = value_of(answer)
                return value
            self._channel.say("did", id=answer["call"], **_outcome(lambda: fn(*args)))

    def sleep(self, seconds: float, name: str | None = None) -> None:
        """Sleep, through crashes and restarts."""
        self._ask("sleep", seconds=seconds, name=name)

    def ask(self, question: Any, name: str | None = None) -> Any:  # noqa: ANN401
        """Ask people or programs outside, and wait for the answer."""
        return self._ask("ask", question=question, name=name)

    def start(
        self,
        plugin_id: str,
        entry_id: str,
        args: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> str:
        """Start another run; give its id."""
        parts = {"plugin_id": plugin_id, "entry_id": entry_id, "args": dict(args or {})}
        return str(self._ask("start", name=name, **parts))


def _outcome(call: Callable[[], Any]) -> dict[str, Any]:
    try:
        return sound({"value": call()})
    except Exception as error:  # noqa: BLE001 - the server decides what becomes of it
        return {"error": error_of(error)}


def sound(outcome: dict[str, Any]) -> dict[str, Any]:
    """Give an outcome that can be said, or an error that says why it cannot."""
    try:
        msgspec.json.encode(outcome)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        return {"error": error_of(StepError(f"the result of a step cannot be recorded: {error}"))}
    return outcome


def error_of(error: BaseException) -> dict[str, Any]:
    """Give an exception as it is said."""
    if isinstance(error, PluginError):
        told = {"code": error.code, "message": error.message, "retriable": error.retriable}
        return {**told, "details": error.details}
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = {"file": last[0].filename.rpartition("/")[2], "line": last[0].lineno} if last else None
    return {
        "code": "PLUGIN_ERROR",
        "message": f"{type(error).__name__}: {error}"[:20_000],  # cut shorter when it was redacted
        "details": where,
    }


def _is_cancellation(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_cancellation, error.exceptions))
    return isinstance(error, RunCancelled)


def execute(channel: Channel, entries: Mapping[str, Entry], start: dict[str, Any]) -> None:
    """Execute one entry and say what came of it."""
    try:
        entry = entries[start["entry_id"]]
        args = entry.check(start["args"])
        value = _call(channel, entry, start["run"], args)
        _flush()
        channel.say("return", value=value)
    except BaseException as error:  # noqa: BLE001 - whatever happens is said
        _flush()
        channel.say("raise", error=error_of(error), cancelled=_is_cancellation(error))


def _flush() -> None:
    """What was printed belongs to the run that is about to end."""
    sys.stdout.flush()
    sys.stderr.flush()


def _call(channel: Channel, entry: Entry, about: Mapping[str, Any], args: Mapping[str, Any]) -> Any:  # noqa: ANN401 - what the entry returns
    handler: Any = entry.handler
    if inspect.iscoroutinefunction(handler):
        from runtime.process.kit_async import call  # noqa: PLC0415 - asyncio takes its time to import

        return call(channel, handler, about, args)
    return handler(SyncRunContext(SyncRun(channel, about)), **args)


def main() -> None:
    """Serve one run after the other, until the server is gone."""
    channel = Channel(int(os.environ["PERDURE_READ_FD"]), int(os.environ["PERDURE_WRITE_FD"]))
    module, _, name = sys.argv[1].partition(":")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - the plugin's own folder
    if code := os.environ.get("PERDURE_CODE"):
        sys.path.insert(0, code)  # the plugin as it was loaded, whatever is on disk by now
    cls: Any = import_module(module)
    for part in name.split("."):
        cls = getattr(cls, part)
    entries = declared(cls).entries
    while True:
        start = channel.starts.get()
        execute(channel, entries, start)
        channel.forget()
