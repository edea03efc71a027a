"""One run: its record, its exports, its log."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from perdure.runtime.client.choice import Choice
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
from perdure.runtime.runs.commands.found_run import found_run, run_id_of
from perdure.runtime.runs.commands.parameters import InstantParam, RunName

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perdure.actors.run.views import ExportItem, LogLineView, QuestionView, RunRecord
    from perdure.runtime.client.client import Caller
    from perdure.runtime.runs.answers import RunAnswer

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
    ask = partial(_read, invocation, run, at, is_short=invocation.json)
    answer, questions, at_work = Choice(invocation).asked(ask)
    if invocation.json:
        invocation.give(answer)
        return
    record = answer["run"]
    invocation.lines(pairs(_rows(record, questions), invocation.width))
    hints = _hints(record, at, at_work=at_work)
    invocation.lines([styled(hint, "dim") for hint in hints])


async def _read(
    invocation: Invocation, run: str, at: str | None, caller: Caller, *, is_short: bool
) -> tuple[RunAnswer, list[QuestionView], bool]:
    """Read a run, its open questions unless it is to be short, and whether it can go on."""
    answer: RunAnswer = await found_run(invocation, caller, run, at)
    if is_short:
        return answer, [], caller.at_work
    asked = {"run_id": answer["run"]["run_id"], "at": answer["cursor"]}
    page = await caller.call("runs.questions", asked)
    return answer, page["questions"], caller.at_work


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


def _hints(run: RunRecord, at: str | None, *, at_work: bool) -> Iterator[str]:
    """Yield the commands that may come next."""
    run_id = run["run_id"]
    if at is not None:
        yield ""
        yield f"This is the state at that moment. The current one: perdure show {run_id}"
    elif run["finished_at"] is None:
        yield ""
        if run["questions"]:
            yield f"Answer it:  perdure answer {run_id}"
        if at_work:
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
    pages = Choice(invocation).asked(partial(pages_of, invocation, "runs.export", run, at))
    items: list[ExportItem] = [item for page in pages for item in page["items"]]
    for item in items:
        if invocation.json:
            invocation.give(item)
        else:
            _show_item(invocation, item)
    if not items and not invocation.json:
        invocation.say("This run has no exports.")


async def pages_of(
    invocation: Invocation, operation: str, run: str, at: str | None, caller: Caller
) -> list[Any]:
    """Read page after page, all at one cursor."""
    run_id = await run_id_of(invocation, caller, run)
    asked: dict[str, Any] = {"run_id": run_id, "at": at, "limit": PAGE}
    pages: list[Any] = []
    while True:
        pages.append(await caller.call(operation, asked))
        if pages[-1]["next_after"] is None:
            return pages
        asked |= {"after": pages[-1]["next_after"], "at": pages[-1]["cursor"]}


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
        case "binary_url" if "preview" in item["metadata"]:
            return f"{item['metadata']['preview']}… ({item['binary_url']})"
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
    pages = Choice(invocation).asked(partial(pages_of, invocation, "runs.logs", run, at))
    lines: list[LogLineView] = [line for page in pages for line in page["lines"]]
    dropped = sum(page["dropped"] for page in pages)
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


def _log_line(line: LogLineView) -> str:
    time = local(line["at"]).strftime("%H:%M:%S.%f")[:-3]
    level = styled(f"{line['level']:<7}", line["level"])
    return f"{styled(time, 'dim')}  {level}  {clean(line['text'])}"
