"""The operations on runs: those that begin and change something, and those that only read.

Each takes a principal and a request, and answers with the cursor up to which the answer is true.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from perdure.actors.run.commands import Answer
from perdure.actors.run.stream import stream_of
from perdure.runtime.execution.run_ends import LetGo
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.operations import operation
from perdure.runtime.kernel.principal import Permission, Principal
from perdure.runtime.runs.answers import RunAnswer
from perdure.runtime.runs.queries import PAGE_BYTES, RunQueries
from perdure.runtime.runs.requests import AnswerRun, CancelRun, CreateRun, RetryRun
from perdure.runtime.secrets.redaction import holds_a_secret

if TYPE_CHECKING:
    from perdure.runtime.execution.executor import Executor
    from perdure.runtime.runs.cancellation import Cancellation
    from perdure.runtime.runs.creation import Creation
    from perdure.runtime.runs.index import RunIndex
    from perdure.runtime.runs.reader import RunReader


class Runs(RunQueries):
    """Everything that can be done with runs."""

    def __init__(
        self,
        executor: Executor,
        index: RunIndex,
        reader: RunReader,
        creation: Creation,
        cancellation: Cancellation,
    ) -> None:
        """Have the executor do what is asked for."""
        super().__init__(executor.context.log, index, reader)
        self._executor = executor
        self._env = executor.context.env
        self._creation = creation
        self._cancellation = cancellation

    # Beginning

    @operation(
        "runs.create",
        Permission.RUN,
        "PLUGIN_NOT_FOUND",
        "ENTRY_NOT_FOUND",
        "IDEMPOTENCY_CONFLICT",
        "CONFLICT",
        "PAYLOAD_TOO_LARGE",
    )
    async def create(self, principal: Principal, request: CreateRun) -> RunAnswer:
        """Accept a run, or find the one that the idempotency key stands for."""
        created = await self._creation.create(principal, request)
        if request.mode == "async":
            return self._answer(created)
        with trio.move_on_after(self._executor.context.limits.sync_wait), suppress(LetGo):
            ended = await self._executor.end_of(created.state.created.run_id)
            answer = self._answer(ended)
            answer["result"] = await self._reader.items(
                ended, frozenset(ended.state.result), most=PAGE_BYTES
            )
            return answer
        return self._answer(await self._reader.now(principal, created.state.created.run_id))

    @operation(
        "runs.retry",
        Permission.RUN,
        "RUN_NOT_FOUND",
        "RUN_NOT_TERMINAL",
        "SECRET_REQUIRED",
        "IDEMPOTENCY_CONFLICT",
        "CONFLICT",
        "PAYLOAD_TOO_LARGE",
    )
    async def retry(self, principal: Principal, request: RetryRun) -> RunAnswer:
        """Run again what has ended: a new run, the next attempt of its root.

        With an idempotency key it is made once, however often it is asked for.
        """
        parent = await self._reader.now(principal, request.run_id)
        return self._answer(
            await self._creation.retry(
                principal,
                parent.state,
                secrets=request.secrets,
                key=request.idempotency_key,
            )
        )

    # Asking

    @operation("runs.cancel", Permission.CANCEL, "RUN_NOT_FOUND")
    async def cancel(self, principal: Principal, request: CancelRun) -> RunAnswer:
        """Ask a run to end; one that has ended stays as it is."""
        created = (await self._reader.require(principal, request.run_id)).created
        folded = await self._cancellation.ask_to_end(
            principal, created, reason=request.reason, force=request.force
        )
        return self._answer(folded)

    @operation(
        "runs.answer",
        Permission.RUN,
        "RUN_NOT_FOUND",
        "RUN_NOT_RUNNING",
        "QUESTION_NOT_FOUND",
        "ALREADY_ANSWERED",
        "PAYLOAD_TOO_LARGE",
    )
    async def answer(self, principal: Principal, request: AnswerRun) -> RunAnswer:
        """Answer a question of a run."""
        created = (await self._reader.require(principal, request.run_id)).created
        redactor = await self._executor.redactor_of(created)
        if redactor.finds(request.answer):
            raise OperationError("VALIDATION_ERROR", holds_a_secret("the answer"))
        command = Answer(
            question_id=request.question_id,
            answer=request.answer,
            by=str(principal),
            at=self._env.now(),
        )
        folded = await self._executor.runs.ask(
            stream_of(request.run_id), command, principal=str(principal), new_work=True
        )
        return self._answer(folded)
