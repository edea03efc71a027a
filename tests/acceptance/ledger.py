"""The acceptance lists as data: every promised behaviour, and how far along it is."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

ITEM = re.compile(r"\b[RPL]\d{1,3}\b")


class Status(StrEnum):
    """How far along an item is."""

    DONE = "done"  # a test that names it passes
    NEXT = "next"  # being worked towards
    LATER = "later"  # promised, not begun


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One promised behaviour."""

    id: str
    text: str
    status: Status


def load(directory: Path) -> dict[str, Item]:
    """Every item of every list in the directory, by id."""
    items: dict[str, Item] = {}
    for path in sorted(directory.glob("*.toml")):
        for row in tomllib.loads(path.read_text(encoding="utf-8"))["item"]:
            item = Item(id=row["id"], text=row["text"], status=Status(row["status"]))
            if ITEM.fullmatch(item.id) is None:
                raise ValueError(f"{path.name}: {item.id!r} is not an item number")
            if item.id in items:
                raise ValueError(f"{path.name}: {item.id} is listed twice")
            items[item.id] = item
    return items


def named_in(docstrings: Iterable[str | None]) -> frozenset[str]:
    """The items that docstrings name."""
    return frozenset(found for text in docstrings if text for found in ITEM.findall(text))


def summary(items: Mapping[str, Item]) -> str:
    """How many items stand where, in one line."""
    count = Counter(item.status for item in items.values())
    return "acceptance: " + ", ".join(f"{count[status]} {status}" for status in Status)
