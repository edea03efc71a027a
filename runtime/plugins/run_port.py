"""What ``ctx.run`` needs of the place where its entry runs. Light.

Five places keep it: inline (the one that does the work), a thread and two kinds of processes (which
lead to it), and the fake run of tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.runtime.plugins.run_messages import Bytes, Call, Report, Step


class AboutRun(msgspec.Struct, frozen=True):
    """What an entry knows of its run from the start; also on the wire, in this order."""

    id: str
    attempt: int
    root_id: str
    trace_id: str | None
    deadline: int | None  # UTC nanoseconds
    attempt_token: str  # the same over all activations of this attempt


class RunPort(Protocol):
    """A way to a run, from one place. All that it is given was checked.

    In a place for plain functions nothing is ever awaited: what takes time blocks its thread.
    """

    @property
    def about(self) -> AboutRun:
        """What the run is."""

    @property
    def cancelled(self) -> bool:
        """Whether the run was asked to end."""

    @property
    def cancel_reason(self) -> str | None:
        """Why, if somebody said so."""

    def report(self, report: Report) -> None:
        """Take a report, without waiting for anything."""

    async def call(self, call: Call) -> Any:  # noqa: ANN401 - what was asked for
        """Do what is asked for; give the answer."""

    async def step(self, step: Step, body: Callable[[], Any]) -> Any:  # noqa: ANN401 - what it returns
        """Do a step once; its body returns as the functions of this place do, awaited or not."""

    async def export_bytes(self, item: Bytes, data: Any) -> str:  # noqa: ANN401 - bytes, in any way
        """Take in bytes; give the item's id. What gives them piece by piece does so here."""
