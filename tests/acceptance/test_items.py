import re
from pathlib import Path

import pytest

from tests.acceptance.ledger import load

ITEMS = Path(__file__).parent / "items"


@pytest.mark.parametrize(("letter", "count"), [("R", 128), ("P", 173), ("L", 124)])
def test_no_item_is_missing(letter: str, count: int) -> None:
    """Each list is numbered from one without a hole; an item can change, never vanish."""
    numbers = [int(name[1:]) for name in load(ITEMS) if name[0] == letter]
    assert numbers == list(range(1, count + 1))


def test_every_item_says_something() -> None:
    """No item is an empty line."""
    assert all(item.text.strip() for item in load(ITEMS).values())


def test_items_of_the_wire_are_marked_so() -> None:
    """An item of the protocol that names a route, a status of HTTP or a channel is of the wire."""
    spoken = re.compile(r"\b(?:POST|GET|PUT|HTTP|SSE|40\d|413|\w*channel|deltas?|subscri\w+)\b")
    protocol = [item for item in load(ITEMS).values() if item.id.startswith("R")]
    found = {item.id for item in protocol if spoken.search(item.text)}
    assert len(found) > 20
    assert found - {item.id for item in protocol if item.wire} == set()


def test_an_item_listed_twice_is_refused(tmp_path: Path) -> None:
    """An id means one behaviour, whichever list it is in."""
    row = '[[item]]\nid = "R1"\ntext = "t"\nstatus = "next"\n'
    (tmp_path / "a.toml").write_text(row)
    (tmp_path / "b.toml").write_text(row)
    with pytest.raises(ValueError, match=r"b\.toml: R1 is listed twice"):
        load(tmp_path)


def test_an_unknown_status_is_refused(tmp_path: Path) -> None:
    """There is no status besides done, next and later."""
    (tmp_path / "a.toml").write_text('[[item]]\nid = "R1"\ntext = "t"\nstatus = "maybe"\n')
    with pytest.raises(ValueError, match="maybe"):
        load(tmp_path)
