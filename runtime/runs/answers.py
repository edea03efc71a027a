"""What is answered about runs: the response of each operation.

Every answer carries the cursor at which it is true: the place up to which it was folded. Following
from there misses nothing.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from perdure.actors.run.history_rows import HistoryRow
from perdure.actors.run.views import (
    ErrorView,
    ExportItem,
    LogLineView,
    QuestionView,
    RunRecord,
)


class RunAnswer(TypedDict):
    """A run. Created with mode sync and ended in time, it comes with its result.

    Of a large result as many items as fit into a page; the run's ``result_refs`` name them all.
    """

    run: RunRecord
    cursor: str
    result: NotRequired[list[ExportItem]]


class RunPage(TypedDict):
    """Runs, newest first; ``next_after`` leads to the next page and is null at the end.

    ``unreadable`` names runs that belong here and whose records cannot be read, if there are any.
    """

    runs: list[RunRecord]
    next_after: str | None
    cursor: str
    unreadable: NotRequired[list[str]]


class FoundRuns(TypedDict):
    """The first few ids that begin so, in their order; ``more`` says that there are others."""

    run_ids: list[str]
    more: bool
    cursor: str


class BulkRefusal(TypedDict):
    """A run that could not be changed, and why."""

    run_id: str
    code: str
    message: str


class BulkAnswer(TypedDict):
    """How many runs match at the cursor, and what was done to a page of them.

    ``run_ids`` are those asked to end, or the new attempts; ``unchanged`` had ended or had another
    attempt meanwhile. Without a confirmed count nothing is done, and all of it is empty.
    ``next_after`` is null at the end.
    """

    count: int
    run_ids: list[str]
    unchanged: int
    refused: list[BulkRefusal]
    next_after: str | None
    cursor: str


class ExportPage(TypedDict):
    """A run's export items in order; ``next_after`` is null at the end."""

    items: list[ExportItem]
    next_after: str | None
    cursor: str


class QuestionPage(TypedDict):
    """The open questions of a run in the order they were asked.

    ``more`` says that there are others, which come up when these are answered.
    """

    questions: list[QuestionView]
    more: bool
    cursor: str


class UploadAnswer(TypedDict):
    """An upload that is open: bytes can be brought until it expires."""

    upload_id: str
    run_id: str
    size_limit: int
    expires_at: float
    cursor: str


class BlobAnswer(TypedDict):
    """A blob, by the path at which this server offers it; an entry can export it by that."""

    binary_url: str
    sha256: str
    size: int


class BlobPiece(TypedDict):
    """A range of a blob of ``size`` bytes in all."""

    data: bytes
    start: int
    size: int
    sha256: str
    cursor: str


class CollectionAnswer(TypedDict):
    """What was removed: how many blobs, with how many bytes."""

    blobs: int
    bytes: int
    cursor: str


class LogPage(TypedDict):
    """Lines that a run has logged, and how many more were dropped among them."""

    lines: list[LogLineView]
    dropped: int
    next_after: str | None
    cursor: str


class HistoryPage(TypedDict):
    """What happened inside a run, in order; ``next_after`` is null at the end."""

    history: list[HistoryRow]
    next_after: str | None
    cursor: str


class EntryView(TypedDict):
    """An entry as callers see it."""

    entry_id: str
    description: str | None
    args: dict[str, Any]  # JSON Schema 2020-12
    timeout: float | None
    resumes: bool


class PluginView(TypedDict):
    """A plugin as callers see it."""

    plugin_id: str
    version: str
    description: str | None
    limit: int | None
    entries: list[EntryView]


class ProblemView(TypedDict):
    """Why something was not loaded, where, and what to do about it."""

    source: str
    message: str
    remedy: str
    file: str | None
    line: int | None


class PluginPage(TypedDict):
    """The plugins that are loaded, by id, and what could not be loaded."""

    plugins: list[PluginView]
    problems: list[ProblemView]
    cursor: str


class Envelope(TypedDict):
    """What came out of a triggered entry, in the shape that callers had before there were runs.

    ``data`` is what the entry returned, or its result items. There is no run to follow if
    ``run_id`` is null.
    """

    ok: bool
    data: Any
    error: ErrorView | None
    run_id: str | None
