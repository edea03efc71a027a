"""Whoever sits at the keyboard answers what a run asks, one question at a time."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import trio

from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.terminal.invocation import Refusal
from perdure.runtime.runs.commands.parameters import typed
from perdure.runtime.runs.commands.show import asked_in_words

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from perdure.runtime.runs.commands.live_view import Display

    Give = Callable[[str, Any], Awaitable[object]]  # a question's id, and the answer to it


class Keyboard:
    """Passes questions of a run on to whoever sits here, and answers back."""

    def __init__(
        self, display: Display, give: Give, nursery: trio.Nursery, *, otherwise: str
    ) -> None:
        """Wait for what is typed in tasks of a nursery; where nobody types, say what to do."""
        self._display = display
        self._give = give
        self._nursery = nursery
        self._otherwise = otherwise
        self._turn = trio.Lock()  # one line answers one question
        self._open: dict[str, trio.CancelScope] = {}

    def asked(self, question_id: str, question: Any) -> None:  # noqa: ANN401 - whatever was asked
        """Show a question as soon as those before it have an answer."""
        if question_id not in self._open:
            self._open[question_id] = trio.CancelScope()
            self._nursery.start_soon(self._answer, question_id, question)

    def answered(self, question_id: str) -> None:
        """Wait for no answer any more, wherever it came from."""
        if question_id in self._open:
            self._open[question_id].cancel()

    async def _answer(self, question_id: str, question: Any) -> None:  # noqa: ANN401
        line, is_shown = "", False
        with self._open[question_id] as scope:
            async with self._turn:
                is_shown = True
                line = await self._typed(question)
        if is_shown and scope.cancelled_caught:
            self._display.note("It was answered elsewhere.")
        if line:
            try:
                await self._give(question_id, typed(line.rstrip("\n")))
            except (OperationError, Refusal) as error:  # the run has ended meanwhile, say
                self._display.note(error.message)

    async def _typed(self, question: Any) -> str:  # noqa: ANN401 - whatever was asked
        self._display.note(f"The run asks: {asked_in_words(question)}")
        if not sys.stdin.isatty():
            self._display.note(f"There is nobody to answer it here; {self._otherwise}")
            return ""
        self._display.note("Type an answer (JSON, or text) and press Enter:")
        self._display.pause(paused=True)
        try:
            await trio.lowlevel.wait_readable(sys.stdin)
            return sys.stdin.readline()
        finally:
            self._display.pause(paused=False)
