"""The user at the keyboard answers the questions of a run, one at a time."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import trio

from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.runs.commands.parameters import typed
from perdure.runtime.runs.commands.show import asked_in_words

if TYPE_CHECKING:
    from perdure.runtime.client.client import Client
    from perdure.runtime.runs.commands.live_view import Display


class Keyboard:
    """Shows the questions of a run to the user, and sends the answers back."""

    def __init__(
        self,
        client: Client,
        run_id: str,
        display: Display,
        nursery: trio.Nursery,
        *,
        otherwise: str,
    ) -> None:
        """Read answers in tasks of a nursery; without a terminal, show ``otherwise``."""
        self._client = client
        self._run_id = run_id
        self._display = display
        self._nursery = nursery
        self._otherwise = otherwise
        self._turn = trio.Lock()  # one line answers one question
        self._open: dict[str, trio.CancelScope] = {}

    async def look(self) -> None:
        """Read the open questions: show new ones, one after the other, and drop answered ones."""
        page = await self._client.call("runs.questions", {"run_id": self._run_id})
        asked = {each["question_id"]: each["question"] for each in page["questions"]}
        for question_id, question in asked.items():
            if question_id not in self._open:
                self._open[question_id] = trio.CancelScope()
                self._nursery.start_soon(self._answer, question_id, question)
        for question_id in self._open.keys() - asked.keys():
            self._open[question_id].cancel()  # answered, here or elsewhere

    async def _answer(self, question_id: str, question: Any) -> None:  # noqa: ANN401
        line, is_shown = "", False
        with self._open[question_id] as scope:
            async with self._turn:
                is_shown = True
                line = await self._typed(question)
        if is_shown and scope.cancelled_caught:
            self._display.note("The question was answered elsewhere.")
        if line:
            try:
                given = {"question_id": question_id, "answer": typed(line.rstrip("\n"))}
                await self._client.call("runs.answer", {"run_id": self._run_id, **given})
            except OperationError as error:  # for example, the run has ended meanwhile
                self._display.note(error.message)

    async def _typed(self, question: Any) -> str:  # noqa: ANN401 - whatever was asked
        self._display.note(f"The run asks: {asked_in_words(question)}")
        if not sys.stdin.isatty():
            self._display.note(f"It cannot be answered here (no terminal); {self._otherwise}")
            return ""
        self._display.note("Type an answer (JSON or text) and press Enter:")
        self._display.pause(paused=True)
        try:
            await trio.lowlevel.wait_readable(sys.stdin)
            return sys.stdin.readline()
        finally:
            self._display.pause(paused=False)
