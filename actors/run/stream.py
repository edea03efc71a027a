"""The names of the streams of runs."""

from typing import Final

RUN_STREAMS: Final = "run"  # what they begin with, before a slash and the id


def stream_of(run_id: str) -> str:
    """Name the stream of a run."""
    return f"{RUN_STREAMS}/{run_id}"
