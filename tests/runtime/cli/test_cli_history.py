"""`perdure history`: what happened inside a run, for people and for programs."""

from __future__ import annotations

import click
import pytest

from perdure.actors.run.history_rows import HistoryRow
from perdure.runtime.kernel.terminal.text import columns_of
from perdure.runtime.runs.commands.history import history_lines
from tests.runtime.cli.terminal import Shell

NOON = 1785585600.25  # 2026-08-01 12:00 UTC
ID = "0198c5f2-6f0e-7a51-9c3d-5b2f8a6e4d10"
ROWS: list[HistoryRow] = [
    {"at": NOON, "what": "activated", "epoch": 1, "host": ID, "plugin_version": "1.2"},
    {
        "at": NOON + 1,
        "what": "step_failed",
        "step": "fetch the first page",
        "tries": 1,
        "error": {"code": "OSError", "message": "no route", "details": None, "retriable": True},
        "retry_at": NOON + 3,
    },
    {"at": NOON + 3, "what": "step_recorded", "step": "fetch", "size": 12, "preview": '{"n": 3}'},
    {"at": NOON + 3, "what": "step_recorded", "step": "long", "size": 2048, "preview": "x" * 200},
    {"at": NOON + 4, "what": "sleep_begun", "step": "nap", "until": NOON + 64},
    {
        "at": NOON + 4,
        "what": "question_asked",
        "step": "ask",
        "question_id": "ask-1",
        "size": 20,
        "preview": "Deploy?",
    },
    {
        "at": NOON + 5,
        "what": "answered",
        "question_id": "ask-1",
        "by": "local/me",
        "size": 4,
        "preview": "true",
    },
    {"at": NOON + 5, "what": "child_started", "step": "start-1", "child_run_id": ID},
    {
        "at": NOON + 6,
        "what": "exported",
        "export_item_id": f"{ID}.3",
        "type": "text",
        "description": "summary",
    },
    {"at": NOON + 6, "what": "deactivated", "epoch": 1, "how": "lost"},
    {
        "at": NOON + 7,
        "what": "cancel_requested",
        "intent": "cancel",
        "mode": "cooperative",
        "reason": "enough",
        "by": "local/me",
        "deadline": NOON + 12,
    },
    {"at": NOON + 12, "what": "cancel_escalated", "mode": "interrupt", "deadline": None},
    {
        "at": NOON + 13,
        "what": "ended",
        "outcome": "canceled",
        "error": {"code": "CANCELED", "message": "enough", "details": None, "retriable": False},
    },
]


def shown(rows: list[HistoryRow], width: int | None) -> list[str]:
    """The lines of a table, without colours."""
    return list(map(click.unstyle, history_lines(rows, width)))


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times as in London in winter."""
    monkeypatch.setenv("TZ", "UTC")


def test_every_row_can_be_read_by_people() -> None:
    """With what it is about and what matters of it."""
    lines = shown(ROWS, None)
    assert [line.split("  ")[0] for line in lines[:2]] == ["TIME", "12:00:00.250"]
    for line, told in zip(
        lines[1:],
        [
            "#1  version 1.2; host 0198c5f2-6f0e",
            "fetch the first page  try 1: OSError: no route; again in 2.0s",
            'fetch  {"n": 3}',
            "long  " + "x" * 200 + "… (2.0 KiB)",
            "nap  until 2026-08-01 12:01:04.250+00:00 (1m00s)",
            "ask-1  Deploy?",
            "ask-1  local/me: true",
            f"start-1  {ID}",
            "item 3  text summary",
            "#1  its host was lost",
            "cooperative  cancel, asked by local/me; enough; harder in 5.0s",
            "interrupt",
            "canceled  CANCELED: enough",
        ],
        strict=True,
    ):
        assert told in "  ".join(part.strip() for part in line.split("  ") if part)


@pytest.mark.parametrize("columns", [80, 120])
def test_a_history_fits_the_terminal(columns: int) -> None:
    """Over one day, over several, and whatever the names are; every column begins at its title."""
    later: HistoryRow = {**ROWS[0], "at": NOON + 86400 * 3}
    for rows in (ROWS, [*ROWS, later]):
        head, *lines = shown(rows, columns)
        assert max(map(columns_of, [head, *lines])) <= columns
        at = head.index("WHAT")
        assert all(line[at - 1 : at] in {" ", ""} for line in lines)
        assert all(word in head for word in ("TIME", "NAME", "DETAIL"))


def test_rows_of_several_days_have_dates() -> None:
    """Or nobody could tell which day it was."""
    later: HistoryRow = {**ROWS[0], "at": NOON + 86400}
    assert shown([ROWS[0], later], None)[2].startswith("2026-08-02 12:00:00.250 ")


def test_the_history_of_a_run_is_shown_now_and_as_it_was(shell: Shell) -> None:
    """As a table, as one object a line, and at a moment before anything has happened."""
    shell.call("run", "test.steps")
    run = shell.runs()[0]
    rows = shell.json_lines("history", run["run_id"])
    assert [row["what"] for row in rows] == [
        "activated",
        *["step_recorded", "exported"] * 3,
        "exported",
        "deactivated",
        "ended",
    ]
    lines = shell.call("history", run["run_id"], COLUMNS="80").stdout.splitlines()
    assert len(lines) > len(rows)
    early = f"{run['started_at']:.6f}"
    result = shell.call("history", run["run_id"], "--at", early)
    assert "Nothing has happened in this run yet" in result.output
    assert shell.json_lines("history", run["run_id"], "--at", early) == []
    assert "RUN_NOT_FOUND" not in shell.call("history", run["run_id"][:8]).output


def test_texts_of_a_run_cannot_steer_the_terminal() -> None:
    """Control characters are shown as such (pitfalls of any log)."""
    row: HistoryRow = {**ROWS[2], "step": "a\x1b[31mb", "preview": "x\x1b]0;y\n"}
    assert not any("\x1b" in line for line in shown([row], 80))
