from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from perdure.eventlog import RealEnv, Record, SqliteStore, open_log, verify
from perdure.eventlog.sqlite.schema import SCHEMA_VERSION
from tests.golden.events import EVENTS, EXAMPLES
from tools.golden import described

LOGS = sorted(Path(__file__).parent.glob("log-format-*.db"))


def test_the_current_format_has_a_golden_log() -> None:
    """A new format is not done before its golden log is written (`python -m tools.golden`)."""
    assert f"log-format-{SCHEMA_VERSION}.db" in [path.name for path in LOGS]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
async def test_a_golden_log_reads_the_same_for_ever(path: Path, tmp_path: Path) -> None:
    """Every record, cursor and event of every past format is what it was when it was written."""
    copy = tmp_path / "log.db"
    shutil.copy(path, copy)
    expected = json.loads(path.with_suffix(".json").read_text())
    store = SqliteStore.open(copy, env=RealEnv())
    async with open_log(RealEnv(), store) as log:
        records = (await log.read_all()).records
        assert [described(record, log, EVENTS) for record in records] == expected
        for item in expected:
            assert (await log.resolve(item["cursor"])).position == item["position"]
        assert (await verify(log, registry=EVENTS)).sound
    store.close()


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_events_are_written_as_they_always_were(path: Path) -> None:
    """The bytes of today's encoding are the bytes in the golden log."""
    expected = json.loads(path.with_suffix(".json").read_text())
    for event, item in zip(EXAMPLES, expected, strict=True):
        new = EVENTS.encode(event, event_id=bytes(16), event_time=0)
        assert (new.name, new.body.hex(), new.schema) == (
            item["name"],
            item["body"],
            item["schema"],
        )
        assert EVENTS.decode(_record(item)) == event


def _record(item: dict[str, object]) -> Record:
    parts = {
        name: bytes.fromhex(str(item[name])) if name in {"body", "event_id", "meta"} else item[name]
        for name in Record._fields
        if name in item
    }
    return Record(**parts)  # type: ignore[arg-type]
