"""The process side of the wire: two pipes to the server, and what is said about one run.

A process executes one run after the other. Each has a talk of its own: what it asked for is
answered there, it hears of its own cancel request, and once it has said how it ended nobody can
speak of it any more, nor of the run that comes after it. It imports little: see the kit.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.runtime.plugins.contract import PluginError, RunCancelled
from perdure.runtime.process.messages import MAX_LINE, to_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from perdure.runtime.plugins.run_messages import Request, RunMessage
    from perdure.runtime.process.messages import Raise, Return

    Heard = Callable[[dict[str, Any]], None]


class Pipes:
    """The two pipes to the server."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        """Read in a thread of its own: a busy entry hears of a cancel request all the same."""
        self._from_server = os.fdopen(read_fd, "rb")
        self._to_server = os.fdopen(write_fd, "wb", buffering=0)
        self._talk: Talk | None = None
        self.writing = threading.Lock()
        self.numbers = count(1)  # of requests; never the same for two runs
        self.talks: SimpleQueue[Talk] = SimpleQueue()
        listener = threading.Thread(target=self._listen, daemon=True)  # noqa: TID251 - no Env here
        listener.start()

    def write(self, line: bytes) -> None:
        """Write a line; whoever does so holds ``writing``."""
        while line:  # a signal can cut a write short
            line = line[self._to_server.write(line) or 0 :]

    def _listen(self) -> None:
        try:
            self._hear_all()
        except BaseException:  # noqa: BLE001 - deaf, it would keep its run waiting for ever
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)  # the server is gone, or has no use for us any more

    def _hear_all(self) -> None:
        for line in self._from_server:
            message = msgspec.json.decode(line)
            if message.get("do") == "start":
                self._talk = Talk(self, message)
                self.talks.put(self._talk)
            elif self._talk is not None:
                self._talk.hear(message)


class Talk:
    """What is said about one run."""

    def __init__(self, pipes: Pipes, start: Mapping[str, Any]) -> None:
        """Begin with what the server said first."""
        self.start = start
        self.about: Mapping[str, Any] = start["run"]
        self.cancel_reason: str | None = None
        self.cancelled = threading.Event()
        self._pipes = pipes
        self._waiting: dict[int, Heard] = {}
        self._is_over = False

    def say(self, message: RunMessage) -> None:
        """Say something that is not answered."""
        self._write(message, last=False)

    def request(self, request: Request, heard: Heard) -> None:
        """Say something; ``heard`` is called with each answer, in the listening thread."""
        number = request.id = next(self._pipes.numbers)
        self._waiting[number] = heard
        try:
            self.say(request)
        except BaseException:
            self._waiting.pop(number, None)
            raise

    def end(self, message: Return | Raise) -> None:
        """Say how the run has ended. Whoever still waits for an answer hears that it is over."""
        message.run_id = self.about["id"]
        self._write(message, last=True)
        for number in list(self._waiting):
            over = {"re": number, "error": {"message": "the run has ended"}, "cancelled": True}
            self.hear(over)

    def _write(self, message: RunMessage, *, last: bool) -> None:
        try:
            line = to_line(message)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise PluginError("VALIDATION_ERROR", f"this cannot be said: {error}") from error
        if len(line) > MAX_LINE:
            raise PluginError(
                "PAYLOAD_TOO_LARGE", f"this takes {len(line)} bytes; {MAX_LINE} can be said at once"
            )
        with self._pipes.writing:
            if self._is_over:
                raise RunCancelled("the run has ended")
            self._is_over = last
            self._pipes.write(line)

    def hear(self, message: dict[str, Any]) -> None:
        """Take what the server says. An answer that nobody waits for any more is no news."""
        if message.get("do") == "cancel":
            if message.get("run_id") == self.about["id"]:
                self.cancel_reason = message.get("reason")
                self.cancelled.set()
            return
        is_call = "call" in message
        number = message["call" if is_call else "re"]
        heard = self._waiting.get(number) if is_call else self._waiting.pop(number, None)
        if heard is not None:
            heard(message)
