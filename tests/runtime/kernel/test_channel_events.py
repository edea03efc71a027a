"""What channels show of records: thinning, and stored bytes passed on as they are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.actors.run.events import ProgressReported, RunEvent
from perdure.actors.run.status import Outcome, Status
from perdure.eventlog import Metadata, cbor
from perdure.eventlog.filter import EVERYTHING
from perdure.eventlog.record import START, Record
from perdure.runtime.kernel.channels.event import ChannelEvent
from perdure.runtime.kernel.channels.record_event import RecordEvent, log_record
from perdure.runtime.kernel.channels.selection import Selection
from tests.actors.test_run_core import CANCELING, HISTORIES, ended
from tests.actors.test_run_views import PROGRESS, STAGE, records
from tests.features import TRIED

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=300)
NUMBER = st.integers(0, (1 << 63) - 1)


@pytest.mark.parametrize("name", ["runs", "run"])
def test_a_lagging_follower_gets_the_newest_report_and_every_status(name: str) -> None:
    """What reports have told comes with the next change; nothing that changed a status is missing.

    (R43)
    """
    half = ProgressReported(progress=0.5, message=None, keeps_message=True, at=0)
    history = (*HISTORIES[Status.RUNNING], PROGRESS, STAGE, half, CANCELING, half, half)
    channel = TRIED.channels[name]
    selection = Selection(channel, EVERYTHING, None, limit=500)

    def told(*history: RunEvent) -> list[Any]:
        shown = records(*history)
        portion = selection.portion(shown, 500, read=EVERYTHING, shown=channel.shown)
        assert portion.taken == len(shown)
        events = [one.as_event() for one in portion.events]
        return events if name == "runs" else [event["run"] for event in events]

    *_, running, canceling, reported = told(*history)
    assert (running["status"], "stage" in running) == ("running", False)
    assert (canceling["status"], canceling["stage"]) == ("cancel_requested", STAGE.stage)
    assert (canceling["progress"], canceling["message"][:1]) == (0.5, "\u4e16")
    assert (reported["status"], reported["progress"]) == ("cancel_requested", 0.5)
    assert "message" not in reported
    *_, over = told(*history, ended(Outcome.CANCELED))
    assert (over["status"], over["progress"]) == ("canceled", 0.5)
    assert len(told(*history, ended(Outcome.CANCELED))) == 4


def test_reports_on_one_run_leave_others_alone() -> None:
    """Each run is told of by its own events, in their order."""
    one = ChannelEvent("run", START, {"a": 1}, subject="one", is_report=True)
    two = ChannelEvent("run", START, {"b": 1}, subject="two", is_report=True)
    item = ChannelEvent("export", START, {"c": 1})
    end = ChannelEvent("run", START, {"d": 1}, subject="one")
    selection = Selection(TRIED.channels["runs"], EVERYTHING, None, limit=500)
    told = [event.as_event() for event in selection._thinned([one, two, item, end])]
    assert told == [{"b": 1}, {"c": 1}, {"a": 1, "d": 1}]


@pytest.mark.parametrize("name", TRIED.channels)
def test_both_formats_hold_the_same_event(name: str) -> None:
    """JSON and CBOR are two spellings of what is shown, encoded once."""
    history = records(*HISTORIES[Status.RUNNING], PROGRESS, STAGE)
    for shown in [event for record in history for event in TRIED.channels[name].show(record)]:
        event = shown.as_event()
        assert cbor.decode_strict(shown.cbor) == event
        assert msgspec.json.decode(shown.json) == event
        assert shown.cbor is shown.cbor
        assert shown.json is shown.json


@given(TEXT, TEXT, TEXT, st.tuples(*[NUMBER] * 5), st.booleans(), TEXT)
def test_a_record_is_spliced_from_what_is_stored(
    stream: str, scope: str, name: str, numbers: tuple[int, ...], seal: bool, text: str
) -> None:
    """Whatever the record, its CBOR is that of the event it shows."""
    record = Record(
        position=numbers[0],
        stream=stream,
        version=numbers[1],
        name=name,
        body=cbor.encode({"text": text, "bytes": b"\0"}),
        scope=scope,
        event_id=bytes(range(16)),
        event_time=numbers[2],
        commit_time=numbers[3],
        schema=numbers[4],
        seal=int(seal),
        meta=Metadata(principal=text, fields={"status": text}).encode(),
    )
    assert cbor.decode_strict(RecordEvent(record).cbor) == log_record(record)
