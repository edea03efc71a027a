"""The names of the streams and scopes of runs."""

from typing import Final

RUN_STREAMS: Final = "run"  # what they begin with, before a slash and the id
RUN_PREFIX: Final = f"{RUN_STREAMS}/"


def stream_of(run_id: str) -> str:
    """Name the stream of a run."""
    return f"{RUN_PREFIX}{run_id}"


def run_id_of(stream: str) -> str:
    """Give the id of the run whose stream this is."""
    return stream.removeprefix(RUN_PREFIX)


def scope_of(run_id: str, session_id: str | None) -> str:
    """Name the scope of a run: its session, or without one the run itself."""
    return f"session/{session_id}" if session_id else stream_of(run_id)
