"""Follows one run from a cursor to its end and updates a display."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from perdure.actors.run.events import RUN_EVENTS, Answered, ExportAppended, QuestionAsked, RunEnded
from perdure.actors.run.stream import stream_of
from perdure.actors.run.views import delta, export_item
from perdure.eventlog.filter import Filter

if TYPE_CHECKING:
    from perdure.eventlog.log import EventLog
    from perdure.eventlog.record import Mark, Record
    from perdure.runtime.runs.commands.keyboard import Keyboard
    from perdure.runtime.runs.commands.live_view import Display

TICK: Final = 0.25  # seconds between two updates of the elapsed time


async def follow_run(
    log: EventLog,
    run_id: str,
    after: str | Mark,
    display: Display,
    keyboard: Keyboard | None = None,
) -> None:
    """Show the events of a run after a cursor, until its end; the keyboard gets its questions."""
    follow = await log.follow(after, Filter(streams=frozenset({stream_of(run_id)})))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_tick, display)
        while True:
            batch = await follow.next_batch()
            for record in batch.records:
                _show(record, run_id, log.cursor(record.mark), display)
                if keyboard is not None:
                    _ask(record, keyboard)
                if record.name == RunEnded.event_name:
                    nursery.cancel_scope.cancel()
                    return


def _show(record: Record, run_id: str, cursor: str, display: Display) -> None:
    change = delta(record)
    if change is not None:
        display.change(change, cursor)
    elif record.name == ExportAppended.event_name:
        item: ExportAppended = RUN_EVENTS.decode(record)
        display.item(export_item(run_id, item), cursor)


def _ask(record: Record, keyboard: Keyboard) -> None:
    if record.name == QuestionAsked.event_name:
        asked: QuestionAsked = RUN_EVENTS.decode(record)
        keyboard.asked(asked.question_id, asked.question)
    elif record.name == Answered.event_name:
        answer: Answered = RUN_EVENTS.decode(record)
        keyboard.answered(answer.question_id)


async def _tick(display: Display) -> None:
    while True:
        await trio.sleep(TICK)
        display.tick()
