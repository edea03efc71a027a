"""The names of streams that have an actor."""


def stream_of(run_id: str) -> str:
    """Name the stream of a run."""
    return f"run/{run_id}"
