"""The way to a run from its process: messages to the server, and what it answers. Light.

Plain functions and async ones have the same; they differ in how an answer is waited for, and in how
a function is called.
"""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.runtime.plugins.contract import PluginError, RunCancelled, StepError
from perdure.runtime.plugins.run_port import AboutRun
from perdure.runtime.plugins.step_body import LastTry
from perdure.runtime.process.chunks import chunks_of
from perdure.runtime.process.error_message import error_of, value_of
from perdure.runtime.process.messages import Did, Piece

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from perdure.runtime.plugins.run_messages import Bytes, Call, Report, Request, Step
    from perdure.runtime.process.pipes import Talk

    Answer = dict[str, Any]


_NO_OUTCOME: Final = (RunCancelled, StepError)  # a step that raises it has not failed


class Answers:
    """What is answered to one request, also after it was given up."""

    def __init__(self, talk: Talk, queue: SimpleQueue[Answer] | asyncio.Queue[Answer]) -> None:
        """Wait for the first."""
        self.queue = queue
        self._talk = talk
        self._called: int | None = None  # for a piece that was not said yet
        self._why: BaseException | None = None

    def hear(self, answer: Answer) -> None:
        """Take an answer."""
        self._called = answer.get("call")
        self.queue.put_nowait(answer)
        if self._why is not None:
            self.give_up(self._why)

    def give_up(self, why: BaseException) -> None:
        """Say that no more pieces will come, now or when the next is called for."""
        self._why = why
        self.say(error=error_of(why))

    def say(self, **piece: Any) -> None:
        """Say a piece, if one was called for."""
        if self._called is not None:
            number, self._called = self._called, None
            self._talk.say(Piece(id=number, **piece))


class ProcessPort:
    """The port of a plain function: it blocks, and never awaits."""

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
        return value_of(await self._next(self._request(call)))

    async def step(self, step: Step, body: Callable[[], Any]) -> Any:  # noqa: ANN401 - what it returns
        """Call the body whenever the server calls for it."""
        answers = self._request(step)
        did: Did | None = None
        raised: Exception | None = None
        while "call" in (answer := await self._next(answers)):
            did, raised = await self._try(step.name, answer["call"], body)
        if did is not None and did.cancelled and raised is not None:
            raise raised
        return value_of(answer, raised)

    async def export_bytes(self, item: Bytes, data: Any) -> str:  # noqa: ANN401 - bytes, in any way
        """Say a piece whenever the server calls for one."""
        answers = self._request(item)
        async with aclosing(chunks_of(data)) as chunks:
            try:
                while "call" in (answer := await self._next(answers)):
                    answers.say(data=await anext(chunks, b""))
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
            did = Did(id=number, value=await self._waited_for(body()))
        except Exception as error:  # noqa: BLE001 - the server decides what becomes of it
            is_last, is_over = isinstance(error, LastTry), isinstance(error, _NO_OUTCOME)
            raised = error.error if isinstance(error, LastTry) else error
            did = Did(id=number, error=error_of(raised), cancelled=is_over, last=is_last)
        try:
            self._talk.say(did)
        except PluginError as unsaid:
            text = f"the result of step {name!r} cannot be recorded: {unsaid.message}"
            raised = StepError(text)
            did = Did(id=number, error=error_of(raised), cancelled=True)
            self._talk.say(did)
        return did, raised

    def _request(self, request: Request) -> Answers:
        answers = Answers(self._talk, self._new_queue())
        self._talk.request(request, partial(self._bring, answers.hear))
        return answers

    async def _next(self, answers: Answers) -> Answer:
        answer: Answer = await self._waited_for(answers.queue.get())
        return answer

    # How this place waits

    def _new_queue(self) -> SimpleQueue[Answer] | asyncio.Queue[Answer]:
        return SimpleQueue()

    def _bring(self, hear: Callable[[Answer], None], answer: Answer) -> None:
        """Bring an answer from the listening thread to where it is waited for."""
        hear(answer)

    async def _waited_for(self, value: Any) -> Any:  # noqa: ANN401 - what was waited for
        """Give what a function of this place gives when it is called."""
        return value
