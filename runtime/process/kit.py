"""The process side of an entry: what ``python -m perdure.child module:Class`` runs.

It finds the plugin's class, waits to be told to start an entry, executes it (a plain function as
it is, an async one on asyncio), says what came of it, and waits for the next. It ends when its
server is gone. It imports no trio and little else, so that it starts quickly.
"""

from __future__ import annotations

import inspect
import os
import sys
from base64 import b64encode
from importlib import import_module
from io import TextIOWrapper
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from perdure.runtime.kernel.variables import CODE, READ_FD, WRITE_FD
from perdure.runtime.plugins.contract import (
    ONCE,
    FailedStep,
    PluginError,
    Retry,
    RunCancelled,
    StepError,
)
from perdure.runtime.plugins.error_text import is_cancellation, text_of, told, traced, unwrapped
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.process.chunks import pieces
from perdure.runtime.process.kit_logging import RunHandler
from perdure.runtime.process.messages import MAX_LINE
from perdure.runtime.process.pipes import Pipes, Talk
from perdure.runtime.process.sync_run_context import SyncRunContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from perdure.runtime.plugins.byte_source import Piece
    from perdure.runtime.plugins.plugin import Entry

Result = TypeVar("Result")
MAX_MESSAGE: Final = 100_000  # characters of an error's message
MAX_DETAILS: Final = 256 << 10  # bytes of its details
_ENVELOPE: Final = 100  # bytes of a message around what it carries


class RunBase:
    """What the run of a process has, however its entry waits."""

    def __init__(self, talk: Talk) -> None:
        """Belong to one run."""
        about = talk.about
        self._talk = talk
        self.id: str = about["id"]
        self.attempt: int = about["attempt"]
        self.root_id: str = about["root_id"]
        self.trace_id: str | None = about["trace_id"]
        self.deadline: int | None = about["deadline"]
        self.attempt_token: str = about["attempt_token"]

    @property
    def cancelled(self) -> bool:
        """Whether the run was asked to end."""
        return self._talk.cancelled.is_set()

    def check_cancelled(self) -> None:
        """Raise RunCancelled if the run was asked to end."""
        if self.cancelled:
            raise RunCancelled(self._talk.cancel_reason)

    def progress(self, progress: float, message: str | None = None) -> None:
        """Report how far the work is, from 0.0 to 1.0."""
        is_number = isinstance(progress, int | float) and not isinstance(progress, bool)
        if not is_number or not 0.0 <= progress <= 1.0:
            raise PluginError("VALIDATION_ERROR", f"progress is from 0.0 to 1.0, not {progress!r}")
        self._talk.say("progress", progress=progress, message=message)

    def status(self, stage: str, message: str | None = None) -> None:
        """Name what the work is doing."""
        self._talk.say("status", stage=stage, message=message)

    def log(self, text: str, level: str = "info") -> None:
        """Log a line."""
        self._talk.say("log", text=text, level=level)

    def result(self, *items: str) -> None:
        """Mark these items, by id, as the run's result."""
        self._talk.say("result", items=list(items))


def sayable(kind: str, content: Any) -> Any:  # noqa: ANN401 - as its kind says
    """Give the content of an item as it is said."""
    if kind == "binary" and isinstance(content, bytes):
        return b64encode(content).decode("ascii")
    return content


def value_of(answer: dict[str, Any], cause: Exception | None = None) -> Any:  # noqa: ANN401 - what was asked for
    """Give what was answered to a request, or raise the error; of a step, with its cause."""
    error = answer.get("error")
    if error is None:
        return answer.get("value")
    message = error.get("message", "")
    if answer.get("cancelled"):
        raise RunCancelled(message)
    if answer.get("step") == "misused":
        raise StepError(message.removeprefix("StepError: "))
    kind = FailedStep if answer.get("step") == "failed" else PluginError
    raise kind(
        error.get("code", "PLUGIN_ERROR"),
        message,
        details=error.get("details"),
        retriable=error.get("retriable", False),
    ) from cause


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
        self._talk.request(say, answers.put, **parts)
        return value_of(answers.get())

    def export_text(self, text: str, description: str | None = None, **more: Any) -> str:
        """Export a text; give the item's id."""
        return self.export("text", text, description, **more)

    def export_url(self, url: str, description: str | None = None, **more: Any) -> str:
        """Export an address; give the item's id."""
        return self.export("url", url, description, **more)

    def export_binary_url(self, url: str, description: str | None = None, **more: Any) -> str:
        """Export the address of bytes; give the item's id."""
        return self.export("binary_url", url, description, **more)

    def export_binary(self, data: bytes | str, description: str | None = None, **more: Any) -> str:
        """Export a few bytes, or their base64; give the item's id."""
        return self.export("binary", data, description, **more)

    def export_bytes(
        self,
        data: Piece | Iterable[Piece],
        description: str | None = None,
        *,
        mime: str | None = None,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """Export bytes of any size, whole or piece by piece; give the item's id.

        A few are in the item itself, more become a blob. When this returns, both are on disk.
        """
        answers: SimpleQueue[dict[str, Any]] = SimpleQueue()
        more = {"mime": mime, "key": key, "metadata": metadata and dict(metadata)}
        self._talk.request("bytes", answers.put, description=description, **more)
        cut = pieces(data)
        while "call" in (answer := answers.get()):
            try:
                piece = next(cut, b"")
            except BaseException as error:
                self._talk.say("piece", id=answer["call"], error=error_of(error))
                raise
            self._talk.say("piece", id=answer["call"], data=piece)
        return str(value_of(answer))

    def export_json(self, value: Any, description: str | None = None, **more: Any) -> str:  # noqa: ANN401
        """Export a JSON value; give the item's id."""
        return self.export("json", value, description, **more)

    def export_id(self, ref: str, description: str | None = None, **more: Any) -> str:
        """Export a reference to an item that exists."""
        return self.export("id", ref, description, **more)

    def export(
        self,
        type: str,  # noqa: A002 - it is the item's type
        content: Any,  # noqa: ANN401 - as its type says
        description: str | None = None,
        **more: Any,
    ) -> str:
        """Export an item of any type, by name; a binary as base64, an ``id`` as a reference."""
        said = sayable(type, content)
        return str(self._ask("export", type=type, content=said, description=description, **more))

    def step(self, name: str, fn: Callable[..., Result], *args: Any, retry: Retry = ONCE) -> Result:
        """Do something once: its result is recorded and returned again after a crash."""
        answers: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._talk.request("step", answers.put, name=name, retry=rule(retry))
        failed: Exception | None = None
        while "call" in (answer := answers.get()):
            try:
                outcome: dict[str, Any] = {"value": fn(*args)}
            except Exception as error:  # noqa: BLE001 - the server decides what becomes of it
                outcome, failed = failure(error), error
            self._talk.say("did", id=answer["call"], **sound(outcome))
        value: Result = value_of(answer, failed)
        return value

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


def failure(error: Exception) -> dict[str, Any]:
    """Give what came of a step that raised: it failed, or it obeys a cancel request."""
    return {"error": error_of(error), "cancelled": isinstance(error, RunCancelled)}


def sound(outcome: dict[str, Any]) -> dict[str, Any]:
    """Give an outcome that can be said, or an error that says why it cannot."""
    try:
        size = len(msgspec.json.encode(outcome))
        why = f"it takes {size} bytes" if size > MAX_LINE - _ENVELOPE else None
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        why = str(error)
    if why is None:
        return outcome
    return {"error": error_of(StepError(f"the result of a step cannot be recorded: {why}"))}


def error_of(error: BaseException) -> dict[str, Any]:
    """Give an exception as it is said: whole, since only the server knows what is secret in it."""
    error = unwrapped(error)
    if isinstance(error, PluginError):
        said = {"code": text_of(error.code), "message": _whole(text_of(error.message))}
        return {**said, "retriable": bool(error.retriable), "details": _details(error.details)}
    message, where = told(error)
    return {"code": "PLUGIN_ERROR", "message": _whole(message), "details": where}


def _whole(message: str) -> str:
    if len(message) <= MAX_MESSAGE:
        return message.encode("utf-8", "replace").decode("utf-8")
    return f"its message has {len(message)} characters; at most {MAX_MESSAGE} can be said"


def _details(details: Any) -> dict[str, Any] | None:  # noqa: ANN401 - whatever a plugin put there
    if not isinstance(details, dict):
        return None
    try:
        size = len(msgspec.json.encode(details))
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        return {"dropped": str(error)}
    return details if size <= MAX_DETAILS else {"dropped": f"more than {MAX_DETAILS} bytes"}


def execute(entries: Mapping[str, Entry], talk: Talk) -> None:
    """Execute one entry and say what came of it."""
    try:
        entry = entries[talk.start["entry_id"]]
        talk.say("begun")
        value = _call(entry, talk, entry.check(talk.start["args"]))
        _flush()
        talk.end("return", value=value)
    except BaseException as error:  # noqa: BLE001 - whatever happens is said
        _flush()
        if trace := traced(error):
            talk.say("log", level="error", text=_whole(trace))
        talk.end("raise", error=error_of(error), cancelled=is_cancellation(error))


def _flush() -> None:
    """What was printed belongs to the run that is about to end."""
    sys.stdout.flush()
    sys.stderr.flush()


def _call(entry: Entry, talk: Talk, args: Mapping[str, Any]) -> Any:  # noqa: ANN401 - what the entry returns
    handler: Any = entry.handler
    if inspect.iscoroutinefunction(handler):
        from perdure.runtime.process.kit_async import call  # noqa: PLC0415 - asyncio takes its time to import

        return call(handler, talk, args)
    return handler(SyncRunContext(SyncRun(talk)), **args)


def main() -> None:
    """Serve one run after the other, until the server is gone."""
    pipes = Pipes(int(os.environ[READ_FD]), int(os.environ[WRITE_FD]))
    handler = RunHandler()
    handler.install()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # it is read as it is printed
    module, _, name = sys.argv[1].partition(":")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - the plugin's own folder
    if code := os.environ.get(CODE):
        sys.path.insert(0, code)  # the plugin as it was loaded, whatever is on disk by now
    cls: Any = import_module(module)
    for part in name.split("."):
        cls = getattr(cls, part)
    entries = declared(cls).entries
    while True:
        handler.talk = pipes.talks.get()
        execute(entries, handler.talk)
