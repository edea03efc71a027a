"""`perdure answer`: answer a question of a run."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.shell_completion import CompletionItem

from perdure.runtime.client.choice import Choice
from perdure.runtime.kernel.terminal.command import Command, common
from perdure.runtime.kernel.terminal.invocation import (
    CommandRefusal,
    ExitCode,
    Invocation,
    encoded,
    pass_invocation,
)
from perdure.runtime.runs.commands.found_run import run_id_of
from perdure.runtime.runs.commands.parameters import RunName, typed
from perdure.runtime.runs.commands.plugins_loaded import load_here
from perdure.runtime.runs.commands.show import asked_in_words, say_questions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.actors.run.views import QuestionView
    from perdure.runtime.client.client import Caller
    from perdure.runtime.runs.answers import RunAnswer


def _offered(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the open questions of the run; offer none if they cannot be read."""
    with suppress(Exception):
        invocation = context.find_root().ensure_object(Invocation)
        run = context.params["run"] or context.args[0]  # while an option has no value yet
        ask = partial(_open_questions, invocation, run)
        _, questions, _ = Choice(invocation).asked(ask)
        return [
            CompletionItem(each["question_id"], help=asked_in_words(each["question"]))
            for each in questions
            if each["question_id"].startswith(incomplete)
        ]
    return []


@click.command(
    cls=Command,
    short_help="Answer a question of a run.",
    examples=[
        "perdure answer RUN yes",
        "perdure answer RUN '{\"approved\": true}'",
        "perdure answer RUN --question ID 42",
        "perdure answer RUN",
    ],
)
@click.argument("run", type=RunName())
@click.argument("answer", required=False)
@click.option(
    "--question",
    metavar="ID",
    shell_complete=_offered,
    help="The question, if several are open: its id or a prefix of it.",
)
@common
@pass_invocation
def answer(invocation: Invocation, run: str, answer: str | None, question: str | None) -> None:
    """Answer a question of a run. ANSWER is parsed as JSON if possible, else it is text.

    Without ANSWER the command asks on the terminal. If a server holds the log, the server takes
    the answer; otherwise this process writes it, and `perdure retry` resumes the run.
    """
    import trio

    choice = Choice(invocation)
    run_id, open_ones, at_work = choice.asked(partial(_open_questions, invocation, run))
    chosen = _chosen(run_id, open_ones, question)
    value = typed(_asked(invocation, chosen) if answer is None else answer)
    load_here(invocation, choice)  # to know which arguments are secret: no answer may hold them
    request = {"run_id": run_id, "question_id": chosen["question_id"], "answer": value}
    told = trio.run(_answer, choice, request)
    if invocation.json:
        invocation.give(told)
        return
    invocation.say(f"Answered: {encoded(value)}")
    if not at_work:
        invocation.say(f"Resume the run: perdure retry {run_id}")


async def _open_questions(
    invocation: Invocation, run: str, caller: Caller
) -> tuple[str, list[QuestionView], bool]:
    """Give the id of a run, its open questions, and whether a process holds the log."""
    run_id = await run_id_of(invocation, caller, run)
    page = await caller.call("runs.questions", {"run_id": run_id})
    return run_id, page["questions"], caller.at_work


async def _answer(choice: Choice, request: dict[str, Any]) -> RunAnswer:
    async with choice.client(writing=True) as client:
        told: RunAnswer = await client.call("runs.answer", request)
    return told


def _chosen(run_id: str, open_ones: Sequence[QuestionView], beginning: str | None) -> QuestionView:
    """Return the one question that the id, or its prefix, names."""
    if not open_ones:
        _refuse("The run has no open questions.", f"Show the run: perdure show {run_id}")
    found = [each for each in open_ones if each["question_id"].startswith(beginning or "")]
    if len(found) == 1:
        return found[0]
    told = "\n".join(say_questions(found or open_ones))
    if not found:
        _refuse(f"The run has no open question {beginning!r}.", f"Open questions:\n{told}")
    return _refuse(
        f"The run has {len(found)} open questions; name one.",
        f"{told}\nPass --question ID.",
    )


def _refuse(message: str, remedy: str) -> NoReturn:
    raise CommandRefusal(
        message, code="QUESTION_NOT_FOUND", exit_code=ExitCode.USAGE, remedy=remedy
    )


def _asked(invocation: Invocation, chosen: QuestionView) -> str:
    """Ask the user at the terminal."""
    if invocation.json or not sys.stdin.isatty():
        raise click.UsageError("Standard input is no terminal: pass ANSWER.")
    invocation.say(f"The run asks: {asked_in_words(chosen['question'])}")
    return str(click.prompt("Answer (JSON or text)", prompt_suffix=": "))
