from perdure.actors.run.kind import RUN_KIND
from perdure.actors.run.stream import run_id_of, scope_of, stream_of


def test_the_stream_of_a_run_is_that_of_its_kind() -> None:
    """One name, whoever asks: by the run's id, or by the kind of actor."""
    assert stream_of("1") == RUN_KIND.stream("1") == "run/1"
    assert RUN_KIND.id_of("run/1") == run_id_of("run/1") == "1"
    assert RUN_KIND.id_of("run/1/2") == "1/2"


def test_other_streams_belong_to_no_run() -> None:
    """Neither those of other kinds nor those whose names only begin alike."""
    assert RUN_KIND.id_of("session/1") is None
    assert RUN_KIND.id_of("runs/1") is None
    assert RUN_KIND.id_field == "run_id"


def test_the_scope_of_a_run_is_its_session_or_the_run_itself() -> None:
    """As stored from the beginning."""
    assert scope_of("1", "s") == "session/s"
    assert scope_of("1", None) == "run/1"
