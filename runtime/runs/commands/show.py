"""One run: its record, its exports, its log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from perdure.runtime.kernel.terminal.command import Command, common
from perdure.runtime.kernel.terminal.invocation import Invocation, encoded, pass_invocation
from perdure.runtime.kernel.terminal.text import (
    Cell,
    clean,
    counted,
    duration,
    instant,
    local,
    one_line,
    pairs,
    size,
    styled,
)
from perdure.runtime.runs.commands.lists import is_held
from perdure.runtime.runs.commands.parameters import InstantParam, RunName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from perdure.actors.run.views import ExportItem, LogLineView, QuestionView, RunRecord
    from perdure.runtime.kernel.log_reader import LogReader

PAGE: Final = 500
_AT = click.option(
    "--at", type=InstantParam(), help="The state at a cursor, an ISO 8601 time or epoch seconds."
)


@click.command(
    cls=Command,
    short_help="Show a run, now or at an earlier time.",
    examples=[
        "perdure show 0199a7c2-7d3e",
        "perdure show RUN --at 2026-08-01T12:00:00Z",
        "perdure show RUN --json | jq .run.status",
    ],
)
@click.argument("run", type=RunName())
@_AT
@common
@pass_invocation
def show(invocation: Invocation, run: str, at: str | None) -> None:
    """Show a run as it is now, or as it was at an earlier time."""
    answer = reading(
        invocation,
        lambda reader: reader.call("runs.get", {"run_id": run_id_in(reader, run), "at": at}),
    )
    if invocation.json:
        invocation.give(answer)
        return
    record = answer["run"]
    _, questions = reading(
        invocation, lambda reader: questions_of(reader, record["run_id"], answer["cursor"])
    )
    invocation.lines(pairs(_rows(record, questions), invocation.width))
    invocation.lines([styled(hint, "dim") for hint in _hints(invocation, record, at)])


def reading(invocation: Invocation, read: Callable[[LogReader], Any]) -> Any:  # noqa: ANN401
    """Read from the log beside its writer; without a log, raise RUN_NOT_FOUND."""
    from perdure.runtime.kernel.errors import OperationError
    from perdure.runtime.kernel.log_reader import open_reader

    if not invocation.data.log.exists():
        raise OperationError(
            "RUN_NOT_FOUND", f"there is no log in {invocation.data.path}, so there are no runs"
        )
    with open_reader(invocation.data, invocation.features) as reader:
        return read(reader)


def run_id_in(reader: LogReader, beginning: str) -> str:
    """Give the id of the one run that begins so."""
    from perdure.runtime.runs.stored_runs import StoredRuns

    return reader.service(StoredRuns).run_id(beginning)


def questions_of(
    reader: LogReader, run: str, at: str | None = None
) -> tuple[str, list[QuestionView]]:
    """Return the id of a run and its open questions."""
    run_id = run_id_in(reader, run)
    return run_id, reader.call("runs.questions", {"run_id": run_id, "at": at})["questions"]


def asked_in_words(question: Any) -> str:  # noqa: ANN401 - whatever was asked
    """Return the text of a question as one line."""
    from perdure.actors.run.views import question_text

    return one_line(question_text(question) or encoded(question))


def say_questions(questions: Sequence[QuestionView]) -> list[str]:
    """Return a line with id and text for each question."""
    return [f"{each['question_id']}  {asked_in_words(each['question'])}" for each in questions]


def _rows(run: RunRecord, questions: Sequence[QuestionView]) -> list[tuple[str, str | Cell]]:
    started, finished, error = run["started_at"], run["finished_at"], run["error"]
    took = None if started is None or finished is None else finished - started
    return [
        ("run", run["run_id"]),
        ("entry", f"{run['plugin_id']}.{run['entry_id']}"),
        ("status", Cell(run["status"], run["status"])),
        ("stage", run["stage"] or ""),
        ("progress", "" if run["progress"] is None else f"{run['progress']:.0%}"),
        ("message", run["message"] or ""),
        ("questions", "\n".join(say_questions(questions))),
        ("error", "" if error is None else f"{error['code']}: {error['message']}"),
        ("details", encoded(error["details"]) if error and error["details"] else ""),
        ("results", ", ".join(ref["export_item_id"] for ref in run["result_refs"])),
        ("created", instant(run["created_at"])),
        ("started", instant(started)),
        ("updated", instant(run["updated_at"])),
        ("deadline", instant(run["deadline"])),
        ("finished", instant(finished)),
        ("took", duration(took)),
        ("cancel asked", instant(run["cancel_requested_at"])),
        ("reason", run["cancel_reason"] or ""),
        ("attempt", f"{run['attempt']}" + (f" of {run['root_run_id']}" * (run["attempt"] > 1))),
        ("after", run["parent_run_id"] or ""),
        ("started by", run["started_by"] or ""),
        ("children", f"{run['children']}" if run["children"] else ""),
        ("task", run["task_id"] or ""),
        ("trace", run["trace_id"] or ""),
        ("session", run["session_id"] or ""),
        ("key", run["idempotency_key"] or ""),
    ]


def _hints(invocation: Invocation, run: RunRecord, at: str | None) -> Iterator[str]:
    """Yield the commands that may come next."""
    run_id = run["run_id"]
    if at is not None:
        yield ""
        yield f"This is an earlier state. The current one: perdure show {run_id}"
    elif run["finished_at"] is None:
        yield ""
        if run["questions"]:
            yield f"Answer it:  perdure answer {run_id}"
        if is_held(invocation):
            yield f"Follow it:  perdure watch {run_id}"
        else:
            yield "No process is at work on this log."
            yield f"Resume it:  perdure retry {run_id}"
            yield f"Cancel it:  perdure cancel {run_id}"
    elif run["result_refs"]:
        yield ""
        yield f"Its exports: perdure export {run_id}"
    elif run["error"] is not None:
        yield ""
        yield f"Its log:    perdure logs {run_id}"
        yield f"Try again:  perdure retry {run_id}"


@click.command(
    cls=Command,
    short_help="Print the exports of a run.",
    examples=["perdure export RUN", "perdure export RUN --json | jq -r .text"],
)
@click.argument("run", type=RunName())
@_AT
@common
@pass_invocation
def export(invocation: Invocation, run: str, at: str | None) -> None:
    """Print the exports of a run, in order."""
    items: list[ExportItem] = reading(
        invocation, lambda reader: list(pages(reader, "runs.export", run, at, "items"))
    )
    for item in items:
        if invocation.json:
            invocation.give(item)
        else:
            _show_item(invocation, item)
    if not items and not invocation.json:
        invocation.say("This run has no exports.")


def pages(reader: LogReader, operation: str, run: str, at: str | None, key: str) -> Iterator[Any]:
    """Read page after page, all at one cursor."""
    asked: dict[str, Any] = {"run_id": run_id_in(reader, run), "at": at, "limit": PAGE}
    while True:
        page = reader.call(operation, asked)
        yield from page[key]
        if page["next_after"] is None:
            return
        asked |= {"after": page["next_after"], "at": page["cursor"]}


def _show_item(invocation: Invocation, item: ExportItem) -> None:
    about = one_line(item["description"] or "")
    number = item["export_item_id"].rpartition(".")[2]
    invocation.say(styled(f"{number}. {item['type']}  {about}".rstrip(), "dim"))
    invocation.say(clean(content(item)))


def content(item: ExportItem) -> str:
    """Return the content of an item as text."""
    match item["type"]:
        case "json":
            return encoded(item["json"])
        case "binary":
            length = len(item["binary"]) * 3 // 4 - item["binary"][-2:].count("=")
            return f"({size(length)}, {item['mime'] or 'no MIME type'}; use --json to read them)"
        case kind:
            return str(item[kind])  # type: ignore[literal-required]


@click.command(
    cls=Command,
    short_help="Print the log of a run.",
    examples=["perdure logs RUN", "perdure logs RUN --json | jq -r .text"],
)
@click.argument("run", type=RunName())
@_AT
@common
@pass_invocation
def logs(invocation: Invocation, run: str, at: str | None) -> None:
    """Print the log lines of a run: time, level, text."""
    lines, dropped = reading(invocation, lambda reader: _logged(reader, run, at))
    if invocation.json:
        for line in lines:
            invocation.give(line)
        if dropped:
            invocation.give({"dropped": dropped})
        return
    for line in lines:
        invocation.say(_log_line(line))
    if dropped:
        told = f"Dropped {counted(dropped, 'line')}: the run logged faster than its limit."
        invocation.say(styled(told, "warning"), err=True)
    if not lines and not dropped:
        invocation.say("This run has no log lines.")


def _logged(reader: LogReader, run: str, at: str | None) -> tuple[list[LogLineView], int]:
    asked: dict[str, Any] = {"run_id": run_id_in(reader, run), "at": at, "limit": PAGE}
    lines: list[LogLineView] = []
    dropped = 0
    while True:
        page = reader.call("runs.logs", asked)
        lines.extend(page["lines"])
        dropped += page["dropped"]
        if page["next_after"] is None:
            return lines, dropped
        asked |= {"after": page["next_after"], "at": page["cursor"]}


def _log_line(line: LogLineView) -> str:
    time = local(line["at"]).strftime("%H:%M:%S.%f")[:-3]
    level = styled(f"{line['level']:<7}", line["level"])
    return f"{styled(time, 'dim')}  {level}  {clean(line['text'])}"
