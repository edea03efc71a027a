from __future__ import annotations

from typing import Any

import pytest

from perdure.eventlog.checksum import AT_ONCE, append_to, is_sound, sound_size
from perdure.eventlog.record import Record, with_checksum
from perdure.eventlog.testing import example_log, example_record

OTHER: dict[type, Any] = {int: 7, str: "another", bytes: b"another"}


@pytest.mark.parametrize("field", Record._fields[:-1])
def test_every_value_of_a_record_is_covered(field: str) -> None:
    """Whichever value another one stands for, the checksum does not match."""
    record = example_record(3, "run/1", 2, scope="session/1")
    assert is_sound(record)
    changed = record._replace(
        **{field: next(v for t, v in OTHER.items() if isinstance(getattr(record, field), t))}
    )
    assert not is_sound(changed)
    assert is_sound(with_checksum(changed))


def test_a_value_that_moves_to_its_neighbour_is_noticed() -> None:
    """Lengths and types are covered: bytes that only change their place are another record."""
    assert append_to(("ab", "c"))[-1] != append_to(("a", "bc"))[-1]
    assert append_to((b"1",))[-1] != append_to(("1",))[-1] != append_to((1,))[-1]


@pytest.mark.parametrize("count", [1, 2, 15, 16, AT_ONCE])
def test_several_records_are_checked_at_once(count: int) -> None:
    """One damaged among sound ones, anywhere, is enough."""
    records = example_log(streams=3, length=20)[:count]
    assert len(records) == count
    assert sound_size(records) > sum(record.size for record in records)
    for place in range(count):
        spoiled = [*records]
        spoiled[place] = spoiled[place]._replace(seal=1)
        assert not sound_size(spoiled)
