from __future__ import annotations

from perdure.runtime.plugins.changes import Changes, Settled, after_reload
from perdure.runtime.plugins.loading import LoadOutcome, PluginSource, Problem
from perdure.runtime.plugins.plugin import Plugin

A, B = PluginSource(name="a"), PluginSource(name="b")
OLD, NEW, NEWER = {"f": (1,)}, {"f": (2,)}, {"f": (3,)}
NOTHING = Settled()


def test_a_change_counts_when_it_rests() -> None:
    """A file that is still being written is left alone; then it is told once."""
    changes = Changes({A: OLD, B: OLD})
    assert changes.look({A: OLD, B: OLD}) == NOTHING
    assert changes.look({A: NEW, B: OLD}) == NOTHING
    assert changes.look({A: NEWER, B: OLD}) == NOTHING
    assert changes.look({A: NEWER, B: OLD}) == Settled(changed=(A,))
    assert changes.look({A: NEWER, B: OLD}) == NOTHING


def test_a_change_that_is_taken_back_is_none() -> None:
    """Nothing is loaded for it."""
    changes = Changes({A: OLD})
    for seen in (NEW, OLD, OLD):
        assert changes.look({A: seen}) == NOTHING


def test_a_source_that_appears_counts_when_it_rests() -> None:
    """Also if there is nothing in it, as of a module that does not exist."""
    changes = Changes({})
    assert changes.look({A: {}, B: OLD}) == NOTHING
    assert changes.look({A: {}, B: OLD}) == Settled(changed=(A, B))


def test_a_source_is_gone_when_it_stays_away() -> None:
    """One that is replaced is away for a moment only."""
    changes = Changes({A: OLD, B: OLD})
    assert changes.look({B: OLD}) == NOTHING
    assert changes.look({A: OLD, B: OLD}) == NOTHING
    assert changes.look({B: OLD}) == NOTHING
    assert changes.look({B: OLD}) == Settled(gone=(A,))
    assert changes.look({B: OLD}) == NOTHING


def test_what_changed_while_it_was_loaded_is_told_again() -> None:
    """Until it was loaded as it is."""
    changes = Changes({A: OLD})
    changes.look({A: NEW})
    assert changes.look({A: NEW}) == Settled(changed=(A,))
    changes.was_not_loaded(A)
    assert changes.look({A: NEW}) == Settled(changed=(A,))
    changes.was_not_loaded(A)
    assert changes.look({}) == NOTHING
    assert changes.look({}) == Settled(gone=(A,))


def test_a_plugin_that_cannot_be_loaded_again_goes_on_as_it_was() -> None:
    """And one that is not declared any more does not."""
    one, two, newer = (Plugin(id=x, version=v) for x, v in (("x", "1"), ("y", "1"), ("y", "2")))
    problem = Problem(source="a", message="m", remedy="r")
    before = LoadOutcome({"x": one, "y": two})
    assert after_reload(before, LoadOutcome(problems=(problem,))) == LoadOutcome(
        before.plugins, (problem,)
    )
    partly = after_reload(before, LoadOutcome({"y": newer}, (problem,)))
    assert partly == LoadOutcome({"x": one, "y": newer}, (problem,))
    assert after_reload(partly, LoadOutcome({"y": newer})) == LoadOutcome({"y": newer})
