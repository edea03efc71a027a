"""``ctx.run``: what an entry sees of its own run.

Reports and log lines are plain calls and cost nothing. Exports wait when too many are on their way.
Steps, sleeps, questions and children have names: after a crash the entry is called again, and what
has a name already has its outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from perdure.actors.errors import Invalid
from perdure.actors.run.core import INPUT_REQUIRED
from perdure.actors.run.events import (
    ChildStarted,
    QuestionAsked,
    SleepBegun,
    StageChanged,
    StepFailed,
    StepRecorded,
)
from perdure.actors.run.history import NOT_RECORDED
from perdure.actors.run.output import checked_size, inline_bytes
from perdure.actors.run.views import export_item_id, item_number, question_text
from perdure.eventlog import cbor
from perdure.eventlog.errors import CodecError
from perdure.eventlog.units import NANOSECONDS
from perdure.runtime.blobs.blob import BLOB_URL, blob_at, scope_of
from perdure.runtime.execution.byte_export import settle, take_in, told_to_plugins
from perdure.runtime.execution.outcome import error_of
from perdure.runtime.execution.run_secrets import Scanner
from perdure.runtime.plugins.contract import (
    ONCE,
    FailedStep,
    PluginError,
    Retry,
    RunCancelled,
    StepError,
)
from perdure.runtime.secrets.redaction import holds_a_secret

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from perdure.actors.run.events import RunError
    from perdure.runtime.execution.byte_export import Arriving
    from perdure.runtime.execution.execution import Execution

Result = TypeVar("Result")
Outcome = TypeVar("Outcome", StepRecorded, SleepBegun, QuestionAsked)

EXPORT_URL: Final = "perdure:export/"  # and the id of an item
MAX_NAME: Final = 500  # characters of a step's name
_QUESTION_SHOWN: Final = 160  # characters of a question in the message of its stage


class CurrentRun:
    """The run that is being executed, as its entry sees it."""

    def __init__(self, execution: Execution) -> None:
        """Belong to one activation."""
        self._execution = execution
        self._names: set[str] = set()
        created = execution.run.created
        self.id: str = created.run_id
        self.attempt: int = created.attempt
        self.root_id: str = created.root_run_id
        self.trace_id: str | None = created.trace_id
        self.deadline: int | None = execution.run.deadline  # UTC nanoseconds
        self.attempt_token: str = created.run_id  # the same over all activations of this attempt

    # Cancelling

    @property
    def cancelled(self) -> bool:
        """Whether the run was asked to end."""
        return self._execution.cancel_requested

    def check_cancelled(self) -> None:
        """Raise RunCancelled if the run was asked to end."""
        if self.cancelled:
            raise RunCancelled(self._execution.cancel_reason)

    # Reports

    def progress(self, progress: float, message: str | None = None) -> None:
        """Report how far the work is, from 0.0 to 1.0."""
        self._execution.outbox.progress(progress, message, self._execution.now())
        self._execution.delivery.something_waits()

    def status(self, stage: str, message: str | None = None) -> None:
        """Name what the work is doing. This is a stage, not the run's status."""
        self._execution.outbox.stage(stage, message, self._execution.now())
        self._execution.delivery.something_waits()

    def log(self, text: str, level: str = "info") -> None:
        """Log a line."""
        self._execution.outbox.log(level, text, self._execution.now())
        self._execution.delivery.something_waits()

    # Exports

    async def export_text(self, text: str, description: str | None = None, **more: Any) -> str:
        """Export a text; give the item's id."""
        return await self._export("text", text, description, more)

    async def export_url(self, url: str, description: str | None = None, **more: Any) -> str:
        """Export an address; give the item's id."""
        return await self._export("url", url, description, more)

    async def export_binary_url(self, url: str, description: str | None = None, **more: Any) -> str:
        """Export the address of bytes; give the item's id. A blob must be one of this run."""
        if not url.startswith(BLOB_URL):
            return await self._export("binary_url", url, description, more)
        blob = blob_at(url)
        if blob is None or blob.scope != scope_of(self._execution.run):
            raise PluginError("VALIDATION_ERROR", f"{url!r} is no blob that this run may name")
        with told_to_plugins():
            async with self._execution.blobs.hold(blob):
                item = await self._export("binary_url", url, description, more)
                await settle(self._execution)
                return item

    async def export_binary(
        self, data: bytes | str, description: str | None = None, **more: Any
    ) -> str:
        """Export a few bytes, or their base64, as they are; give the item's id."""
        data = inline_bytes(data, self._execution.inline_limit)
        return await self._export("binary", data, description, more)

    async def export_bytes(
        self,
        data: Arriving,
        description: str | None = None,
        *,
        mime: str | None = None,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """Export bytes of any size, whole or piece by piece; give the item's id.

        A few are in the item itself. More become a blob, which is on disk before the item is: when
        this returns, both survive a power cut.
        """
        known = self._execution.outbox.number_of(key)
        if known is not None:
            return export_item_id(self.id, known)
        more: dict[str, Any] = {"mime": mime, "key": key, "metadata": dict(metadata or {}) or None}
        with told_to_plugins():
            async with self._execution.blobs.draft(scope_of(self._execution.run)) as draft:
                scanner = Scanner(self._execution.redactor)
                content = await take_in(draft, data, self._execution.inline_limit, scanner)
                if isinstance(content, bytes):
                    return await self._export("binary", content, description, more)
                about = {"size": draft.size, "sha256": content.sha256}
                more["metadata"] = {**(metadata or {}), **about}
                item = await self._export("binary_url", content.url, description, more)
                await settle(self._execution)
                return item

    async def export_json(self, value: Any, description: str | None = None, **more: Any) -> str:  # noqa: ANN401
        """Export a JSON value; give the item's id."""
        return await self._export("json", value, description, more)

    async def export_id(self, ref: str, description: str | None = None, **more: Any) -> str:
        """Export a reference to an item that exists, of any run of the same owner.

        Nothing is copied: the new item is a url that names the other.
        """
        if not await self._execution.has_export(ref):
            raise PluginError(
                "VALIDATION_ERROR", f"{ref!r} is no export that this run may refer to"
            )
        more["metadata"] = {**(more.get("metadata") or {}), "ref": ref}
        return await self._export("url", f"{EXPORT_URL}{ref}", description, more)

    async def export(
        self,
        type: str,  # noqa: A002 - it is the item's type
        content: Any,  # noqa: ANN401 - as its type says
        description: str | None = None,
        **more: Any,
    ) -> str:
        """Export an item of any type, by name; a binary as base64, an ``id`` as a reference."""
        if type == "id":
            return await self.export_id(content, description, **more)
        if type == "binary":
            return await self.export_binary(content, description, **more)
        if type != "json" and not isinstance(content, str):
            raise PluginError("VALIDATION_ERROR", f"an export of type {type} holds a text")
        if type == "binary_url":
            return await self.export_binary_url(content, description, **more)
        return await self._export(type, content, description, more)

    async def _export(
        self,
        kind: str,
        content: Any,  # noqa: ANN401 - as its kind says
        description: str | None,
        more: Mapping[str, Any],
    ) -> str:
        await self._execution.delivery.room()
        number = self._execution.outbox.export(
            kind, content, self._execution.now(), description=description, **more
        )
        self._execution.delivery.something_waits()
        return export_item_id(self.id, number)

    def result(self, *items: str) -> None:
        """Mark these items, by id, as the run's result. The last call counts."""
        self._execution.outbox.result(tuple(map(self._number, items)), self._execution.now())
        self._execution.delivery.something_waits()

    def _number(self, item: str) -> int:
        named = item_number(item)
        if named is None or named[0] != self.id:
            raise PluginError("VALIDATION_ERROR", f"{item!r} is not an export of this run")
        return named[1]

    # Durable steps

    async def step(
        self,
        name: str,
        fn: Callable[..., Awaitable[Result]],
        *args: Any,
        retry: Retry = ONCE,
    ) -> Result:
        """Do something once: its result is recorded and returned again after a crash.

        The function itself runs at least once. Whatever it calls outside can be told apart by
        ``attempt_token`` and the step's name, which stay the same.
        """
        self._claim(name)
        recorded = self._execution.history.values.get(name, NOT_RECORDED)
        if recorded is not NOT_RECORDED:
            self._execution.reached(name)
            return cast("Result", recorded)
        failed = await self._failed_before(name)
        while True:
            self.check_cancelled()
            await self._execution.stop_if_over()
            try:
                with self._execution.waiting.suspended():
                    value = await fn(*args)
            except RunCancelled:
                raise
            except Exception as error:  # noqa: BLE001 - recorded, and raised unless tried again
                failed += 1
                await self._record_failure(name, failed, error, retry)
            else:
                return await self._record(name, value)

    async def sleep(self, seconds: float, name: str | None = None) -> None:
        """Sleep, through crashes and restarts, until so many seconds after the first call."""
        name = self._claim(name or self._next_name("sleep"))
        until = self._execution.history.sleeps.get(name)
        if until is None:
            now = self._execution.now()
            until = now + round(seconds * NANOSECONDS)
            begun = _storable(SleepBegun(step=name, until=until, at=now))
            await self._execution.delivery.hand_over(begun)
        self._execution.reached(name)
        await self._execution.waiting.until(until)

    async def ask(self, question: Any, name: str | None = None) -> Any:  # noqa: ANN401
        """Ask people or programs outside, and wait for the answer, however long it takes."""
        name = self._claim(name or self._next_name("ask"))
        question_id = self._execution.history.questions.get(name)
        if question_id is None:
            self._execution.redactor.refuse("a question", question)
            question_id, now = self._execution.new_id(), self._execution.now()
            asked = QuestionAsked(step=name, question_id=question_id, question=question, at=now)
            self._execution.outbox.drop_stage()
            text = question_text(question)
            message = None if text is None else text[:_QUESTION_SHOWN]
            await self._execution.delivery.hand_over(
                _storable(asked), StageChanged(stage=INPUT_REQUIRED, message=message, at=now)
            )
        self._execution.reached(name)
        return await self._execution.waiting.answer_to(question_id)

    async def start(
        self,
        plugin_id: str,
        entry_id: str,
        args: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> str:
        """Start another run; give its id. It is canceled when this one is."""
        name = self._claim(name or self._next_name("start"))
        passed = dict(args or {})
        self._execution.secrets.know_of_child(plugin_id, entry_id, passed)
        child = self._execution.history.children.get(name)
        if child is None:
            child = self._execution.new_id()
            started = ChildStarted(step=name, child_run_id=child, at=self._execution.now())
            with told_to_plugins():
                await self._execution.delivery.start_child(started, plugin_id, entry_id, passed)
        self._execution.reached(name)
        return child

    def _claim(self, name: str) -> str:
        if not isinstance(name, str) or len(name) > MAX_NAME:
            raise StepError(f"the name of a step is a text of at most {MAX_NAME} characters")
        if not name or name in self._names:
            raise StepError(
                f"step {name!r} was used before in this run; every step needs a name of its own"
            )
        self._execution.redactor.refuse("the name of a step", name)
        self._names.add(name)
        return name

    def _next_name(self, kind: str) -> str:
        number = 1
        while f"{kind}-{number}" in self._names:
            number += 1
        return f"{kind}-{number}"

    async def _failed_before(self, name: str) -> int:
        """Take up a step that an earlier activation has tried in vain."""
        failure = self._execution.history.failures.get(name)
        if failure is None:
            return 0
        if failure.retry_at is None:
            raise _failed_step(failure.error)
        await self._execution.waiting.until(failure.retry_at)
        return failure.tries

    async def _record(self, name: str, value: Result) -> Result:
        try:
            stored = cbor.encode(value)
        except CodecError as error:
            raise StepError(f"the result of step {name!r} cannot be recorded: {error}") from error
        if self._execution.redactor.finds(value):
            raise StepError(holds_a_secret(f"the result of step {name!r}"))
        recorded = StepRecorded(step=name, value=cbor.decode(stored), at=self._execution.now())
        await self._execution.delivery.hand_over(_storable(recorded))
        self._execution.reached(name)
        return cast("Result", cbor.decode(stored))  # the same now as after a crash

    async def _record_failure(self, name: str, failed: int, error: Exception, retry: Retry) -> None:
        """Record a failed try; wait for the next one, or raise if there is none."""
        now, delay = self._execution.now(), retry.delay_after(failed)
        retry_at = None if delay is None else now + round(delay * NANOSECONDS)
        told = error_of(error, self._execution.redactor)
        await self._execution.delivery.hand_over(
            StepFailed(step=name, tries=failed, error=told, retry_at=retry_at, at=now)
        )
        self._execution.reached(name)
        if retry_at is None:
            raise _failed_step(told) from error  # the same now as after a crash
        await self._execution.waiting.until(retry_at)


def _failed_step(error: RunError) -> FailedStep:
    return FailedStep(error.code, error.message, details=error.details, retriable=error.retriable)


def _storable(event: Outcome) -> Outcome:
    """Refuse at the step what could not be recorded."""
    try:
        checked_size(event)
    except Invalid as error:
        raise StepError(f"step {event.step!r} cannot be recorded: {error}") from error
    return event
