"""What can be asked about runs: the requests of their operations."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from perdure.runtime.kernel.requests import (
    After,
    CursorOrInstant,
    Instant,
    Key,
    Limit,
    Name,
    Request,
    Sha256,
    Size,
    Text,
)
from perdure.runtime.plugins.plugin import LONGEST

RunStatus = Literal[
    "queued", "running", "cancel_requested", "succeeded", "failed", "canceled", "timeout"
]
Way = Literal["runs", "direct"]  # of a trigger: creating a run, or executing the entry apart
Wait = Annotated[float, msgspec.Meta(ge=0)]  # seconds; the setting sync_wait bounds them


class CreateRun(Request):
    """Start an entry of a plugin."""

    plugin_id: Name
    entry_id: Name
    args: dict[str, Any] = {}
    task_id: Name | None = None
    trace_id: Name | None = None
    idempotency_key: Key | None = None
    mode: Literal["async", "sync"] = "async"
    timeout: Annotated[float, msgspec.Meta(gt=0, le=LONGEST)] | None = None

    def __repr__(self) -> str:
        """Say what it asks for, and not what with: there may be secrets among the arguments."""
        return f"{type(self).__name__}({self.plugin_id!r}, {self.entry_id!r}, ...)"


class GetRun(Request):
    """Read a run, now or as it was."""

    run_id: Name
    at: CursorOrInstant | None = None


class WaitForRun(Request):
    """Wait until a run has ended; with ``after``, until it has changed after that cursor."""

    run_id: Name
    timeout: Wait | None = None  # by default as long as a wait may last
    after: After | None = None


class ReadRun(GetRun):
    """Read a run, now or as it was; with ``wait``, wait first as ``runs.wait`` does."""

    wait: Wait | None = None
    after: After | None = None  # only with wait


class Conditions(Request):
    """Which runs are meant: all that is stated must match."""

    plugin_id: Name | None = None
    entry_id: Name | None = None
    task_id: Name | None = None
    session_id: Name | None = None
    root_run_id: Name | None = None
    started_by: Name | None = None  # the run whose entry started them
    top_level: bool = False  # only those that no other run has started
    status: list[RunStatus] | None = None
    created_from: Instant | None = None  # inclusive
    created_until: Instant | None = None  # exclusive


class ListRuns(Conditions):
    """List runs, newest first."""

    after: After | None = None  # next_after of the page before
    at: CursorOrInstant | None = None
    limit: Limit = 50


class FindRuns(Request):
    """Find the runs whose ids begin with a text."""

    beginning: Annotated[str, msgspec.Meta(max_length=200)]


class CancelRun(Request):
    """Ask a run to end."""

    run_id: Name
    reason: Text | None = None
    force: bool = False


class RetryRun(Request):
    """Run again what has ended, as a new attempt.

    ``secrets`` are secret arguments: those whose values were forgotten when the run ended have to
    be passed again, as values or as references.
    """

    run_id: Name
    secrets: dict[str, Any] = {}
    idempotency_key: Key | None = None

    def __repr__(self) -> str:
        """Say which run, and nothing of the secrets."""
        return f"{type(self).__name__}({self.run_id!r}, ...)"


class BulkRequest(Conditions):
    """Change many runs: first count them, then pass the count and the cursor of that answer.

    With both, exactly the runs that matched there are changed, newest first, a page at a time;
    ``after`` is ``next_after`` of the page before. Asking for a page again does nothing twice.
    """

    count: Annotated[int, msgspec.Meta(ge=0)] | None = None
    at: After | None = None  # the cursor of the answer with the count
    after: After | None = None
    limit: Limit = 100  # runs in a page


class CancelMany(BulkRequest):
    """Ask all runs that match to end; without ``status``, those queued and running."""

    reason: Text | None = None
    force: bool = False


class RetryMany(BulkRequest):
    """Run again all that match and have no later attempt; without ``status``, those failed."""


class AnswerRun(Request):
    """Answer a question of a run."""

    run_id: Name
    question_id: Name
    answer: Any

    def __repr__(self) -> str:
        """Say which question, and not what was answered."""
        return f"{type(self).__name__}({self.run_id!r}, {self.question_id!r}, ...)"


class ExportRun(Request):
    """Read a run's export items in order."""

    run_id: Name
    after: After | None = None  # an item's id, or a cursor
    limit: Limit = 100
    at: CursorOrInstant | None = None


class ReadQuestions(Request):
    """Read the questions of a run that are open."""

    run_id: Name
    at: CursorOrInstant | None = None


class CreateUpload(Request):
    """Begin to bring bytes to a run."""

    run_id: Name
    size_limit: Size | None = None  # bytes; more are refused


class ReadBlob(Request):
    """Read a range of a blob."""

    run_id: Name  # a run of the scope that the blob belongs to
    sha256: Sha256
    start: Annotated[int, msgspec.Meta(ge=0)] = 0
    length: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)] = 1 << 20


class CollectBlobs(Request):
    """Remove old blobs that nothing in the log names."""


class ReadHistory(Request):
    """Read what happened inside a run."""

    run_id: Name
    after: After | None = None  # next_after of the page before
    limit: Limit = 100  # rows; those that one record tells stay together
    at: CursorOrInstant | None = None


class ReadLogs(Request):
    """Read the lines that a run has logged."""

    run_id: Name
    after: After | None = None  # next_after of the page before
    limit: Limit = 500  # lines; those logged together stay together
    last: Limit | None = None  # only so many lines, from the end: there is no `after`
    at: CursorOrInstant | None = None


class ListPlugins(Request):
    """List what can be run."""


class TriggerEntry(Request):
    """Start an entry and wait for what comes out, as callers did before there were runs."""

    plugin_id: Name
    entry_id: Name
    args: dict[str, Any] = {}
    task_id: Name | None = None
    trace_id: Name | None = None
    idempotency_key: Key | None = None
    via: Way | None = None  # as the setting trigger says; the other needs trigger_choice

    def __repr__(self) -> str:
        """Say what it asks for, and not what with."""
        return f"{type(self).__name__}({self.plugin_id!r}, {self.entry_id!r}, ...)"
