"""What channels show of records: thinning, and stored bytes passed on as they are."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.actors.run.events import ProgressReported
from perdure.actors.run.status import Outcome, Status
from perdure.eventlog import Metadata, cbor
from perdure.eventlog.filter import EVERYTHING
from perdure.eventlog.record import Record
from perdure.runtime.kernel.channels.record_event import RecordEvent, log_record
from perdure.runtime.kernel.channels.selection import Selection
from tests.actors.test_run_core import CANCELING, HISTORIES, ended
from tests.actors.test_run_views import PROGRESS, STAGE, records
from tests.features import TRIED

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=300)
NUMBER = st.integers(0, (1 << 63) - 1)


def test_a_lagging_follower_gets_the_last_report_and_every_status() -> None:
    """Reports in between are left out; nothing that changed a status is (R43)."""
    half = ProgressReported(progress=0.5, message=None, at=0)
    history = (*HISTORIES[Status.RUNNING], PROGRESS, STAGE, half, CANCELING, half, PROGRESS)
    channel = TRIED.channels["runs"]
    selection = Selection(channel, EVERYTHING, None, limit=500)
    told = selection.portion(
        records(*history, ended(Outcome.CANCELED)), 500, read=EVERYTHING, show=channel.show
    )
    kept = [one.as_event() for one in told.events]
    assert [change["status"] for change in kept] == [
        "queued",
        "running",
        "running",  # the stage
        "cancel_requested",
        "cancel_requested",  # the last progress
        "canceled",
    ]
    assert kept[-1]["progress"] == 0.4


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
