"""The creator of runs: one way into being for all, whoever starts them.

A run comes into being with the append that holds its first event: one of the creator's own, or one
that its caller makes anyway, like the delivery of a run that starts another. Secret arguments are
put away before that, and forgotten if the append does not come about.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.actors.folded import Folded
from perdure.actors.run.core import RUN
from perdure.actors.run.events import RUN_EVENTS, RunCreated
from perdure.actors.run.stream import scope_of, stream_of
from perdure.eventlog.append import Append, StreamWrite
from perdure.eventlog.record import encoded_metadata
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.plugins.entries import check_args
from perdure.runtime.secrets.secrets import Accepted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from perdure.actors.run.core import Run
    from perdure.eventlog.env import Env
    from perdure.runtime.execution.executor import Executor

Made = TypeVar("Made")


@dataclass(eq=False, slots=True)
class NewRun:
    """A run that was accepted and is about to come into being."""

    run_id: str
    plugin_id: str
    entry_id: str
    accepted: Accepted  # its arguments
    timeout: float | None  # seconds, unless another is asked for
    exists: bool = False  # its first event is in the log


class Creator:
    """Creates the runs of one executor."""

    def __init__(self, executor: Executor) -> None:
        """Hand over to the executor what was created."""
        self._executor = executor
        self._context = executor.context

    async def accept(
        self, run_id: str, plugin_id: str, entry_id: str, args: Mapping[str, Any], tenant: str
    ) -> NewRun:
        """Accept a run of an entry that is loaded, with arguments that it takes."""
        entry = self._context.entries.find(plugin_id, entry_id)
        accepted = await self._context.secrets.accept(entry.secrets, args, tenant)
        check_args(entry, accepted.real, accepted.redactor)
        return NewRun(run_id, plugin_id, entry_id, accepted, entry.timeout)

    def accept_unknown(self, run_id: str, plugin_id: str, entry_id: str) -> NewRun:
        """Accept a run of an entry that is not loaded: when its turn comes, it fails.

        Its arguments are not kept, since nothing says which of them are secret.
        """
        return NewRun(run_id, plugin_id, entry_id, Accepted({}), None)

    async def accept_again(
        self, run_id: str, before: RunCreated, given: Mapping[str, Any], tenant: str
    ) -> NewRun:
        """Accept the arguments of a run once more, with secrets that are given again.

        What was checked when they were first accepted is not checked again: the entry may have
        changed since, or may not be loaded.
        """
        entry = self._context.entries.get(before.plugin_id, before.entry_id)
        names = frozenset[str]() if entry is None else entry.secrets
        args = {**before.args, **given}
        accepted = await self._context.secrets.accept(names, args, tenant)
        if given and entry is not None:
            check_args(entry, accepted.real, accepted.redactor)
        return NewRun(run_id, before.plugin_id, before.entry_id, accepted, before.timeout)

    def created(
        self, new: NewRun, tenant: str, principal: str, *, timeout: float | None = None
    ) -> RunCreated:
        """Give the first event of a run; where it comes from is for its caller to add."""
        return RunCreated(
            run_id=new.run_id,
            plugin_id=new.plugin_id,
            entry_id=new.entry_id,
            args=new.accepted.args,
            tenant=tenant,
            principal=principal,
            root_run_id=new.run_id,
            attempt=1,
            at=self._context.env.now(),
            timeout=self._context.limits.timeout_of(new.timeout if timeout is None else timeout),
        )

    async def sealed(self, new: NewRun, begin: Callable[[], Awaitable[Made]]) -> Made:
        """Put a run's secrets away while it comes into being; if it does not, forget them."""
        if not new.accepted.sealed:
            return await begin()
        secrets = self._context.secrets
        async with secrets.sealed(new.run_id, new.accepted, lambda: new.exists):
            return await begin()

    async def append(self, new: NewRun, created: RunCreated, *along: StreamWrite) -> Folded[Run]:
        """Bring a run into being in an append of its own, and have it executed."""
        if self._executor.closing:
            raise OperationError(
                "UNAVAILABLE",
                "this server is going down and takes no new work; ask again with the same key",
            )
        first = first_write(self._context.env, created)
        receipt = await self._context.log.append(Append([*along, first]), new_work=True)
        new.exists = True
        (record,) = [each for each in receipt.records if each.stream == first.stream]
        folded = Folded(RUN.evolve(None, created), 1, record.mark, record.commit_time, record.scope)
        self._executor.runs.plant(first.stream, folded)
        self._executor.dispatch(created.run_id, created.plugin_id)
        return folded

    async def append_with(
        self,
        new: NewRun,
        created: RunCreated,
        append: Callable[[StreamWrite], Awaitable[Made]],
    ) -> Made:
        """Bring a run into being in an append of its caller, and have it executed."""
        made = await append(first_write(self._context.env, created))
        new.exists = True
        self._executor.dispatch(created.run_id, created.plugin_id)
        return made


def first_write(env: Env, created: RunCreated) -> StreamWrite:
    """Give the write that brings a run into being."""
    event = RUN_EVENTS.encode(
        created,
        event_id=env.new_id().bytes,
        event_time=created.at,
        metadata=encoded_metadata(
            f"{created.tenant}/{created.principal}",
            created.trace_id,
            tuple(RUN.describe(None, RUN.evolve(None, created)).items()),
        ),
    )
    scope = scope_of(created.run_id, created.session_id)
    return StreamWrite(stream_of(created.run_id), 0, [event], scope)
