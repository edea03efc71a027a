"""The acceptance lists as data: every promised behaviour, and what holds it."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

ITEM = re.compile(r"\b[RPL]\d{1,3}\b")
PASSED = "passed"


class Status(StrEnum):
    """How far along an item is."""

    DONE = "done"  # tests name it, and all of them pass
    NEXT = "next"  # being worked towards
    LATER = "later"  # promised, not begun


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One promised behaviour."""

    id: str
    text: str
    status: Status
    wire: bool = False  # it speaks of HTTP or a channel: a test through a surface must name it


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """How a test ended, and the items it names."""

    test: str
    items: frozenset[str]
    outcome: str
    wire: bool  # it asks through a surface


def load(directory: Path) -> dict[str, Item]:
    """Every item of every list in the directory, by id."""
    items: dict[str, Item] = {}
    for path in sorted(directory.glob("*.toml")):
        for row in tomllib.loads(path.read_text(encoding="utf-8"))["item"]:
            item = Item(**{**row, "status": Status(row["status"])})
            if ITEM.fullmatch(item.id) is None:
                raise ValueError(f"{path.name}: {item.id!r} is not an item number")
            if item.id in items:
                raise ValueError(f"{path.name}: {item.id} is listed twice")
            items[item.id] = item
    return items


def named_in(docstrings: Iterable[str | None]) -> frozenset[str]:
    """The items that docstrings name."""
    return frozenset(found for text in docstrings if text for found in ITEM.findall(text))


def not_held(items: Iterable[Item], shown: Sequence[Shown]) -> list[tuple[Item, str]]:
    """The done items that the tests do not hold, each with the reason."""
    reasons = [(item, _reason(item, shown)) for item in items if item.status is Status.DONE]
    return [(item, reason) for item, reason in reasons if reason is not None]


def _reason(item: Item, shown: Sequence[Shown]) -> str | None:
    naming = [each for each in shown if item.id in each.items]
    if not naming:
        return "no test names it"
    for each in naming:
        if each.outcome != PASSED:
            return f"{each.test}: {each.outcome}"
    if item.wire and not any(each.wire for each in naming):
        return "no test over the wire names it"
    return None


def summary(items: Mapping[str, Item]) -> str:
    """How many items stand where, in one line."""
    count = Counter(item.status for item in items.values())
    return "acceptance: " + ", ".join(f"{count[status]} {status}" for status in Status)
