"""How far a report may go: its rules in words, the same for every place that an entry runs in.

A rule gives what is wrong, or None. The core refuses with it, and so does ``ctx.run``, also in the
process of an entry, which imports no more of the core than this.
"""

from __future__ import annotations

from typing import Final

MAX_LABEL: Final = 64
MAX_MESSAGE: Final = 4096
CUT: Final = "…"  # where a text goes on that is shown no further


def progress_fault(progress: object) -> str | None:
    """Say what is wrong with a progress that is no number from 0.0 to 1.0."""
    if isinstance(progress, bool) or not isinstance(progress, int | float):
        return f"progress is a number from 0.0 to 1.0, not a {type(progress).__name__}"
    if not 0.0 <= progress <= 1.0:  # which NaN is not
        return f"progress is a number from 0.0 to 1.0, not {progress}"
    return None


def shortened(text: str, most: int) -> str:
    """Give a text of so many characters at most; one that was cut ends with a mark."""
    return text if len(text) <= most else f"{text[: most - 1]}{CUT}"


def text_fault(text: object, what: str, most: int | None = None) -> str | None:
    """Say what is wrong with something that is no text, or a longer one than allowed."""
    if not isinstance(text, str):
        return f"{what} is a text, not a {type(text).__name__}"
    if most is not None and len(text) > most:
        return f"{what} has {len(text)} characters; at most {most} are allowed"
    return None
