"""Values for a terminal: text without control characters, times, sizes, tables."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

STYLES: Final[dict[str, dict[str, Any]]] = {
    "queued": {"fg": "cyan"},
    "running": {"fg": "blue", "bold": True},
    "cancel_requested": {"fg": "yellow"},
    "succeeded": {"fg": "green"},
    "failed": {"fg": "red"},
    "canceled": {"fg": "yellow"},
    "timeout": {"fg": "magenta"},
    "ok": {"fg": "green"},
    "warn": {"fg": "yellow"},
    "fail": {"fg": "red", "bold": True},
    "error": {"fg": "red"},
    "warning": {"fg": "yellow"},
    "debug": {"dim": True},
    "dim": {"dim": True},
    "head": {"bold": True},
}
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_COLOUR_OR_CONTROL: Final = re.compile(rf"(\x1b\[[0-9;]*m)|{_CONTROL.pattern}")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_LEAST: Final = 8  # columns below which a cell is left out
_READABLE: Final = 16  # columns below which a wrapping cell does not shrink
_GAP: Final = "  "


def clean(text: str) -> str:
    """Replace control characters, which could steer the terminal; keep newlines and tabs."""
    return _CONTROL.sub("\ufffd", text.replace("\r\n", "\n"))


def printable(text: str) -> str:
    """Replace control characters in what is printed, but not the colours that ``styled`` adds."""
    return _COLOUR_OR_CONTROL.sub(lambda found: found[1] or "\ufffd", text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Collapse a text into one line."""
    return " ".join(clean(text).split())


def columns_of(text: str) -> int:
    """Count the columns of a text on a terminal."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def clipped(text: str, width: int) -> str:
    """Cut a text to a width; an ellipsis marks the cut."""
    if columns_of(text) <= width:
        return text
    kept, used = [], 1
    for char in text:
        used += columns_of(char)
        if used > width:
            break
        kept.append(char)
    return "".join(kept).rstrip() + "…"


def styled(text: str, style: str | None) -> str:
    """Add the colour of a style to a text."""
    return click.style(text, **STYLES[style]) if style in STYLES else text


def local(seconds: float) -> datetime:
    """Convert epoch seconds to local time."""
    return datetime.fromtimestamp(seconds, UTC).astimezone()


def moment(seconds: float | None, now: float) -> str:
    """Format a time for a list: without the date if it is today."""
    if seconds is None:
        return ""
    then = local(seconds)
    is_today = then.date() == local(now).date()
    return then.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M")


def instant(seconds: float | None) -> str:
    """Format a time exactly, as ``--at`` takes it."""
    return "" if seconds is None else local(seconds).isoformat(" ", "milliseconds")


def duration(seconds: float | None) -> str:
    """Format a duration."""
    if seconds is None:
        return ""
    if seconds < _MINUTE:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE}m{whole % _MINUTE:02}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02}m"
    return f"{whole // _DAY}d{whole % _DAY // _HOUR:02}h"


def counted(count: int, noun: str) -> str:
    """Format a number of things, with a plural unless there is one."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size(count: float) -> str:
    """Format a number of bytes."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:  # noqa: PLR2004 - bytes in a KiB
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. If lines are too long, columns with ``gives`` or ``wraps`` shrink."""

    title: str
    gives: bool = False
    right: bool = False
    wraps: bool = False  # long cells continue on further lines


@dataclass(frozen=True, slots=True)
class Cell:
    """A coloured cell."""

    text: str
    style: str | None = None


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[Cell | str]], width: int | None
) -> list[str]:
    """Return the lines of a table, without empty columns."""
    cells = [[_cell(cell) for cell in row] for row in rows]
    used = [i for i, _ in enumerate(columns) if any(row[i].text for row in cells)]
    columns = [columns[i] for i in used]
    cells = [[row[i] for i in used] for row in cells]
    widths = [
        max(columns_of(column.title), *(columns_of(row[i].text) for row in cells))
        for i, column in enumerate(columns)
    ]
    if width is not None:
        _make_room(columns, widths, width)
    kept = [i for i, wide in enumerate(widths) if wide]
    head = [Cell(column.title, "head") for column in columns]
    return [
        _GAP.join(_padded(line[i], widths[i], right=columns[i].right) for i in kept).rstrip()
        for row in [head, *cells]
        for line in _unfolded(row, columns, widths)
    ]


def _unfolded(
    row: list[Cell], columns: Sequence[Column], widths: list[int]
) -> Iterable[Sequence[Cell]]:
    """Yield the lines of a row; wrapping cells have several."""
    parts = [
        [Cell(line, cell.style) for line in wrapped(cell.text, width, 0)]
        if column.wraps
        else [cell]
        for cell, column, width in zip(row, columns, widths, strict=True)
    ]
    return zip_longest(*parts, fillvalue=Cell(""))


def _cell(cell: Cell | str) -> Cell:
    text, style = (cell.text, cell.style) if isinstance(cell, Cell) else (cell, None)
    return Cell(one_line(text), style)


def _make_room(columns: Sequence[Column], widths: list[int], width: int) -> None:
    """Shrink columns from the last to the first; drop one that would be too narrow."""
    for i in reversed(range(len(columns))):
        over = sum(widths) + len(_GAP) * (sum(map(bool, widths)) - 1) - width
        if over > 0 and columns[i].wraps:
            widths[i] = max(min(widths[i], _READABLE), widths[i] - over)
        elif over > 0 and columns[i].gives:
            widths[i] = widths[i] - over if widths[i] - over >= _LEAST else 0


def _padded(cell: Cell, width: int, *, right: bool) -> str:
    text = clipped(cell.text, width)
    space = " " * (width - columns_of(text))
    shown = styled(text, cell.style)
    return space + shown if right else shown + space


def pairs(rows: Iterable[tuple[str, str | Cell]], width: int | None) -> list[str]:
    """Return names and values in two columns; long values are wrapped."""
    found = [(name, value if isinstance(value, Cell) else Cell(value)) for name, value in rows]
    found = [(name, value) for name, value in found if value.text]
    wide = max((len(name) for name, _ in found), default=0)
    indent = " " * (wide + len(_GAP))
    lines = []
    for name, value in found:
        for number, line in enumerate(wrapped(value.text, width, len(indent))):
            start = indent if number else styled(f"{name:<{wide}}", "dim") + _GAP
            lines.append(start + styled(line, value.style))
    return lines


def wrapped(text: str, width: int | None, indent: int) -> list[str]:
    """Break a text into lines that fit beside an indent."""
    lines = clean(text).splitlines() or [""]
    if width is None:
        return lines
    room = max(_LEAST, width - indent)
    return [piece for line in lines for piece in (click.wrap_text(line, room).splitlines() or [""])]
