"""What runs ask, as others read it."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.runs import queries
from perdure.runtime.runs.requests import AnswerRun, CancelRun
from tests.runtime.service import refused, service


async def test_open_questions_are_read_in_order_and_not_all_at_once(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those without an answer; the others come up when these have one; none when it has ended."""
    monkeypatch.setattr(queries, "MOST_QUESTIONS", 2)
    async with service() as s:
        run_id = (await s.start("questions", args={"n": 4}))["run_id"]
        await trio.sleep(1)

        async def asked() -> tuple[list[int], bool, list[str]]:
            page = await s.call("runs.questions", {"run_id": run_id})
            ids = [question["question_id"] for question in page["questions"]]
            return [question["question"] for question in page["questions"]], page["more"], ids

        questions, more, (first, _) = await asked()
        assert (questions, more) == ([0, 1], True)
        await s.answer(LOCAL, AnswerRun(run_id=run_id, question_id=first, answer=1))
        assert (await asked())[:2] == ([1, 2], True)
        await s.cancel(LOCAL, CancelRun(run_id=run_id))
        await s.finished(run_id)
        assert await asked() == ([], False, [])
        await refused("RUN_NOT_FOUND", lambda: s.call("runs.questions", {"run_id": "none"}))
