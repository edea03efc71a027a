"""The id of an export item: the run and the number of the item in it. Light."""

from __future__ import annotations

from typing import Final

_LONGEST_NUMBER: Final = 18  # digits of an item's number; no run comes near


def export_item_id(run_id: str, number: int) -> str:
    """Name an item: unique everywhere, and in the order of the run."""
    return f"{run_id}.{number}"


def item_number(item_id: str) -> tuple[str, int] | None:
    """Give the run and the number that an item's id names, if it is one."""
    run_id, _, number = item_id.rpartition(".")
    if not run_id or not number.isascii() or not number.isdigit() or number.startswith("0"):
        return None
    if len(number) > _LONGEST_NUMBER:
        return None
    return run_id, int(number)
