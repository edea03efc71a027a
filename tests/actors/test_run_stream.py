from perdure.actors.run.stream import run_of_stream, stream_of


def test_the_stream_of_a_run_is_named_after_it() -> None:
    """The name is stored for ever, and leads back to the run."""
    assert stream_of("1-a") == "run/1-a"
    assert run_of_stream("run/1-a") == "1-a"


def test_other_streams_are_of_no_run() -> None:
    """Claims and lineages have streams of their own."""
    assert run_of_stream("lineage/1-a") is None
    assert run_of_stream("a/run/") is None
