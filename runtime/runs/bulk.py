"""The operations on many runs: count first, then change exactly those, so many a second.

The runs are those that match at a cursor. That list never changes, so a page can be asked for
again, by another client, after a crash: canceling twice is canceling once, and a retry is claimed
by the cursor and the run it repeats.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import trio

from perdure.actors.run.status import ENDED, OPEN, Status
from perdure.runtime.kernel.errors import OperationError, translated
from perdure.runtime.kernel.invalid_value import invalid
from perdure.runtime.kernel.operations import operation
from perdure.runtime.kernel.principal import Permission, Principal
from perdure.runtime.runs.answers import BulkAnswer
from perdure.runtime.runs.creation import Superseded
from perdure.runtime.runs.queries import matching
from perdure.runtime.runs.requests import CancelMany, RetryMany
from perdure.runtime.secrets.logged_run import about_run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from perdure.eventlog.env import Env
    from perdure.eventlog.record import Mark
    from perdure.runtime.execution.host_context import HostContext
    from perdure.runtime.runs.cancellation import Cancellation
    from perdure.runtime.runs.creation import Creation
    from perdure.runtime.runs.index import Listed, RunIndex
    from perdure.runtime.runs.reader import RunReader
    from perdure.runtime.runs.requests import BulkRequest
    from perdure.runtime.runs.run_filter import RunFilter

    Change = Callable[[str], Awaitable[str | None]]

RATE: Final = 100.0  # runs changed in a second, by all who ask together
TOGETHER: Final = 10  # runs changed at a time: their appends share a commit
PAGE_TIME: Final = 10.0  # seconds after which a page ends, however many runs are left of it
_NOT_ASKED: Final = OPEN - {Status.CANCEL_REQUESTED.value}  # to end
_FAILED: Final = frozenset({Status.FAILED.value})
_log = logging.getLogger("perdure.bulk")


class Pace:
    """So many turns a second, for all who wait for one."""

    def __init__(self, env: Env, rate: float) -> None:
        """The first turn is free."""
        self._env = env
        self._interval = 1 / rate
        self._next = 0.0

    async def turn(self) -> None:
        """Wait for the next turn."""
        now = self._env.monotonic()
        mine = max(now, self._next)
        self._next = mine + self._interval
        await self._env.sleep(mine - now)


class _Changing:
    """A run being changed, and what comes of it."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._changed: str | None = None
        self.error: OperationError | None = None

    async def do(self, change: Change) -> None:
        try:
            self._changed = await change(self._run_id)
        except Exception as error:  # noqa: BLE001 - one run that is broken holds no other up
            self.error = translated(error)
            if self.error.code == "INTERNAL":
                with about_run(self._run_id):
                    _log.exception("a run could not be changed together with others")

    def tell(self, answer: BulkAnswer) -> None:
        if self.error is not None:
            code, message = self.error.code, self.error.message
            answer["refused"].append({"run_id": self._run_id, "code": code, "message": message})
        elif self._changed is None:
            answer["unchanged"] += 1
        else:
            answer["run_ids"].append(self._changed)


class Bulk:
    """Changes many runs of one node."""

    def __init__(
        self,
        context: HostContext,
        index: RunIndex,
        reader: RunReader,
        creation: Creation,
        cancellation: Cancellation,
        *,
        rate: float = RATE,
    ) -> None:
        """``rate`` is how many runs are changed in a second."""
        self._log = context.log
        self._env = context.env
        self._index = index
        self._reader = reader
        self._creation = creation
        self._cancellation = cancellation
        self._pace = Pace(context.env, rate)

    @operation("runs.cancel_many", Permission.CANCEL, "INVALID_CURSOR")
    async def cancel_many(self, principal: Principal, request: CancelMany) -> BulkAnswer:
        """Ask many runs to end: count them first, then pass the count and its cursor."""
        usual = OPEN if request.force else _NOT_ASKED
        where = _filter(principal, request, OPEN, usual, newest=False)

        async def cancel(run_id: str) -> str | None:
            created = (await self._reader.require(principal, run_id)).created
            folded = await self._cancellation.ask_to_end(
                principal, created, reason=request.reason, force=request.force
            )
            return None if folded.state.cancel is None else run_id  # it ended without being asked

        return await self._change(where, request, cancel)

    @operation("runs.retry_many", Permission.RUN, "INVALID_CURSOR")
    async def retry_many(self, principal: Principal, request: RetryMany) -> BulkAnswer:
        """Run many runs again: count them first, then pass the count and its cursor."""
        where = _filter(principal, request, ENDED, _FAILED, newest=True)

        async def retry(run_id: str) -> str | None:
            parent = await self._reader.now(principal, run_id)
            try:
                made = await self._creation.retry_in_bulk(principal, parent.state, request.at or "")
            except Superseded:
                return None
            return made.state.created.run_id

        return await self._change(where, request, retry)

    # Inside

    async def _change(self, where: RunFilter, request: BulkRequest, change: Change) -> BulkAnswer:
        count, at = await self._index.count(where, await self._place(request))
        answer: BulkAnswer = {
            "count": count,
            "run_ids": [],
            "unchanged": 0,
            "refused": [],
            "next_after": None,
            "cursor": self._log.cursor(at),
        }
        if request.count is None:
            return answer
        if request.count != count:
            raise invalid(
                f"count: {count} runs match at this cursor, and not {request.count}; "
                "ask again without count, with the same conditions",
                "count",
                f"the number {count}",
                count=count,
            )
        before = None
        if request.after is not None:
            before = (await self._log.resolve(request.after)).position
        found, _ = await self._index.list(where, before=before, at=at, limit=request.limit + 1)
        page = found[: request.limit]
        last = await self._change_page(page, change, answer)
        if last < len(found):
            answer["next_after"] = await self._cursor_of(page[last - 1])
        return answer

    async def _place(self, request: BulkRequest) -> Mark | None:
        """Give the place that a request states; the count and its cursor come together."""
        if (request.count is None) != (request.at is None):
            told = "count and at belong together: both are in the first answer"
            raise invalid(told, "count" if request.count is None else "at", "a value", "nothing")
        return None if request.at is None else await self._log.resolve(request.at)

    async def _change_page(self, page: Sequence[Listed], change: Change, answer: BulkAnswer) -> int:
        """Change runs, a few at a time; give how many were come to.

        If it is a bad time for it, or it takes too long, the rest is for the next page.
        """
        until = self._env.monotonic() + PAGE_TIME
        for first in range(0, len(page), TOGETHER):
            if first and self._env.monotonic() >= until:
                return first
            few = page[first : first + TOGETHER]
            changes = [_Changing(listed.run_id) for listed in few]
            async with trio.open_nursery() as nursery:
                for changing in changes:
                    await self._pace.turn()
                    nursery.start_soon(changing.do, change)
            for number, changing in enumerate(changes, first):
                error = changing.error
                if error is not None and error.kind.retriable and error.code != "INTERNAL":
                    if number:
                        return number  # what was done after it is asked for again, and done once
                    raise error
                changing.tell(answer)
        return len(page)

    async def _cursor_of(self, listed: Listed) -> str | None:
        log = self._log
        mark = await log.in_thread(log.store.mark_at, listed.position)
        return None if mark is None else log.cursor(mark)


def _filter(
    principal: Principal,
    request: BulkRequest,
    possible: frozenset[str],
    usual: frozenset[str],
    *,
    newest: bool,
) -> RunFilter:
    """Say which runs are meant, if that can be done to runs in these statuses."""
    statuses = usual if request.status is None else frozenset(request.status)
    if not statuses <= possible:
        names = sorted(possible)
        told = f"status: only runs that are {' or '.join(names)} can be changed like this"
        raise invalid(told, "status", f"some of {', '.join(names)}")
    return replace(matching(principal, request), statuses=statuses, newest=newest)
