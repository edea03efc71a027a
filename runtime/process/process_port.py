"""The way to a run from its process: messages to the server, and what it answers. Light.

Plain functions and async ones have the same; they differ in how an answer is waited for, and in how
a function is called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import aclosing
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.runtime.plugins.contract import PluginError, RunCancelled, StepError
from perdure.runtime.plugins.run_port import AboutRun
from perdure.runtime.process.chunks import chunks_of
from perdure.runtime.process.error_message import error_of, value_of
from perdure.runtime.process.messages import Did, Piece

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.runtime.plugins.run_messages import Bytes, Call, Report, Request, Step
    from perdure.runtime.process.pipes import Talk


class Answers(ABC):
    """What is answered to one request."""

    def __init__(self, talk: Talk) -> None:
        """Wait for the first."""
        self._talk = talk
        self._called: int | None = None  # for a piece that was not said yet
        self._why: BaseException | None = None

    def hear(self, answer: dict[str, Any]) -> None:
        """Take an answer, also after the request was given up."""
        self._called = answer.get("call")
        self.put(answer)
        if self._why is not None:
            self.give_up(self._why)

    @abstractmethod
    def put(self, answer: dict[str, Any]) -> None:
        """Keep an answer for ``get``."""

    @abstractmethod
    async def get(self) -> dict[str, Any]:
        """Give the next one, when it comes."""

    def say(self, piece: bytes) -> None:
        """Say the piece that was called for."""
        number, self._called = self._called, None
        assert number is not None  # noqa: S101 - a call has just come
        self._talk.say(Piece(id=number, data=piece))

    def give_up(self, why: BaseException) -> None:
        """Say that no more pieces will come, now or when the next is called for."""
        self._why = why
        if self._called is not None:
            number, self._called = self._called, None
            self._talk.say(Piece(id=number, error=error_of(why)))


class BlockingAnswers(Answers):
    """Answers to a plain function: it blocks until they come."""

    def __init__(self, talk: Talk) -> None:
        """Wait for the first."""
        super().__init__(talk)
        self._queue: SimpleQueue[dict[str, Any]] = SimpleQueue()

    def put(self, answer: dict[str, Any]) -> None:
        """Keep an answer."""
        self._queue.put(answer)

    async def get(self) -> dict[str, Any]:
        """Give the next one, when it comes."""
        return self._queue.get()


class ProcessPort:
    """The port of a plain function: it blocks, and never awaits."""

    answers: type[Answers] = BlockingAnswers

    def __init__(self, talk: Talk) -> None:
        """Speak about one run."""
        self.about = msgspec.convert(talk.about, AboutRun)
        self._talk = talk

    @property
    def cancelled(self) -> bool:
        """Whether the run was asked to end."""
        return self._talk.cancelled.is_set()

    @property
    def cancel_reason(self) -> str | None:
        """Why, if somebody said so."""
        return self._talk.cancel_reason

    def report(self, report: Report) -> None:
        """Say it."""
        self._talk.say(report)

    async def call(self, call: Call) -> Any:  # noqa: ANN401 - what was asked for
        """Say it, and give the answer."""
        return value_of(await self._request(call).get())

    async def step(self, step: Step, body: Callable[[], Any]) -> Any:  # noqa: ANN401 - what it returns
        """Call the body whenever the server calls for it."""
        answers = self._request(step)
        did: Did | None = None
        raised: Exception | None = None
        while "call" in (answer := await answers.get()):
            did, raised = await self._try(step.name, answer["call"], body)
        if did is not None and did.cancelled and raised is not None:
            raise raised
        return value_of(answer, raised)

    async def export_bytes(self, item: Bytes, data: Any) -> str:  # noqa: ANN401 - bytes, in any way
        """Say a piece whenever the server calls for one."""
        answers = self._request(item)
        async with aclosing(chunks_of(data)) as chunks:
            try:
                while "call" in (answer := await answers.get()):
                    answers.say(await anext(chunks, b""))
            except BaseException as error:
                answers.give_up(error)
                raise
        return str(value_of(answer))

    async def _try(
        self, name: str, number: int, body: Callable[[], Any]
    ) -> tuple[Did, Exception | None]:
        """Call the body of a step and say what came of it; give that, and what it has raised.

        With ``cancelled`` the step is over and has not failed: nothing is recorded of it.
        """
        raised: Exception | None = None
        try:
            did = Did(id=number, value=await self._done(body))
        except Exception as error:  # noqa: BLE001 - the server decides what becomes of it
            raised, is_over = error, isinstance(error, RunCancelled)
            did = Did(id=number, error=error_of(error), cancelled=is_over)
        try:
            self._talk.say(did)
        except PluginError as unsaid:
            text = f"the result of step {name!r} cannot be recorded: {unsaid.message}"
            raised = StepError(text)
            did = Did(id=number, error=error_of(raised), cancelled=True)
            self._talk.say(did)
        return did, raised

    async def _done(self, body: Callable[[], Any]) -> Any:  # noqa: ANN401 - what it returns
        return body()

    def _request(self, request: Request) -> Answers:
        answers = self.answers(self._talk)
        self._talk.request(request, answers.hear)
        return answers
