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
from perdure.runtime.kernel.invalid_value import invalid
from perdure.runtime.kernel.operations import operation
from perdure.runtime.kernel.principal import Permission, Principal
from perdure.runtime.runs.answers import RunAnswer
from perdure.runtime.runs.queries import PAGE_BYTES, RunQueries
from perdure.runtime.runs.requests import AnswerRun, CancelRun, CreateRun, RetryRun, WaitForRun
from perdure.runtime.runs.whole_results import whole_results
from perdure.runtime.secrets.redaction import PLAIN_VALUE, holds_a_secret

if TYPE_CHECKING:
    from perdure.actors.folded import Folded
    from perdure.actors.run.core import Run
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
        run_id, longest = created.state.created.run_id, self._executor.context.limits.sync_wait
        waited = await self._after_wait(principal, run_id, longest)
        answer = self._answer(waited)
        if waited.state.status.is_terminal:
            answer["result"] = await self._reader.items(
                waited, frozenset(waited.state.result), most=PAGE_BYTES
            )
        return answer

    async def outcome(self, principal: Principal, request: CreateRun) -> RunAnswer:
        """Create a run and wait for its end; texts and JSON values of its result come whole."""
        answer = await self.create(principal, request)
        if "result" in answer:
            run = (await self._reader.now(principal, answer["run"]["run_id"])).state
            blobs = self._executor.context.blobs
            answer["result"] = await whole_results(blobs, run, answer["result"], most=PAGE_BYTES)
        return answer

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

    # Waiting

    @operation("runs.wait", Permission.READ, "RUN_NOT_FOUND", "INVALID_CURSOR", waits=True)
    async def wait(self, principal: Principal, request: WaitForRun) -> RunAnswer:
        """Read a run once it has ended, or has changed after a cursor, or the time is over."""
        longest = self._executor.context.limits.sync_wait
        seconds = longest if request.timeout is None else request.timeout
        if not seconds <= longest:
            told = f"a wait lasts at most {longest:g} seconds; ask again when it is over"
            raise invalid(told, "timeout", f"at most {longest:g} seconds", limit=longest)
        after = None
        if request.after is not None:
            after = (await self._log.resolve(request.after)).position
        await self._reader.require(principal, request.run_id)
        return self._answer(await self._after_wait(principal, request.run_id, seconds, after))

    async def _after_wait(
        self, principal: Principal, run_id: str, seconds: float, after: int | None = None
    ) -> Folded[Run]:
        """Give a run as it is when it has ended or changed, or nobody waits for that any more."""
        with trio.move_on_after(seconds), suppress(LetGo):
            return await self._executor.end_of(run_id, after)
        return await self._reader.now(principal, run_id)

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
            raise invalid(holds_a_secret("the answer"), "answer", PLAIN_VALUE)
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
