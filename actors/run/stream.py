"""The stream of a run: where its events are."""

from typing import Final

_PREFIX: Final = "run/"


def stream_of(run_id: str) -> str:
    """Name the stream of a run."""
    return f"{_PREFIX}{run_id}"
