"""The names of the streams of runs."""

from typing import Final

_PREFIX: Final = "run/"


def stream_of(run_id: str) -> str:
    """Name the stream of a run."""
    return _PREFIX + run_id


def run_of_stream(stream: str) -> str | None:
    """Give the run that a stream belongs to, if it is one's."""
    return stream.removeprefix(_PREFIX) if stream.startswith(_PREFIX) else None
