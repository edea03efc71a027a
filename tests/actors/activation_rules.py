"""What must hold of every step in the life of an activation, whatever the table says.

The tests of the table check each of its edges by these rules, and the simulation of runs each step
that an execution really takes.
"""

from __future__ import annotations

from collections.abc import Mapping

from perdure.actors.run.activation import TRANSITIONS, Activation, Happening

A, H = Activation, Happening
Table = Mapping[Activation, Mapping[Happening, Activation]]

ENDS_WITHOUT_ENTRY = {A.INTERRUPTED, A.BROKEN}  # told to stop, and nothing is said yet
SAYS_THE_END = {A.FORCING, A.ENDING}


def broken_rules(before: Activation, happening: Happening, after: Activation) -> list[str]:
    """The rules that a step breaks."""
    entry_ends = happening in {H.RETURN, H.ABANDON}
    rules = {
        "an entry ends once": not entry_ends or before.entry_is_at_work,
        "an entry is over with its end, and not otherwise": after.entry_is_at_work
        == (before.entry_is_at_work and not entry_ends),
        "an entry that was told to stop is not at work as before": after is not A.WORKING,
        "a run ends without its entry only after that was told to stop": happening is not H.FORCE
        or before in ENDS_WITHOUT_ENTRY,
        "an entry that nobody hears is not interrupted": happening is not H.INTERRUPT
        or not before.is_silent,
        "who is silent stays silent": after.is_silent or not before.is_silent,
        "who is not in charge is silent": after.is_silent or happening is not H.FENCE,
        "a run that has ended hears nothing more": after.is_silent or happening is not H.ENDED,
        "silence has a cause": before.is_silent
        or not after.is_silent
        or happening in {H.FENCE, H.ENDED, H.ABANDON},
        "who lets go does not end the run": not before.lets_go or after not in SAYS_THE_END,
        "a drain lets go of what has no end yet": happening is not H.DRAIN
        or after.lets_go
        or before in SAYS_THE_END
        or before.is_silent,
        "an end that is on its way comes": before not in SAYS_THE_END
        or after in SAYS_THE_END
        or after.is_silent,
        "a process that goes down says no more than that it lets go": happening is not H.ABANDON
        or (after.lets_go if before.lets_go else after is A.OVER),
        "what has failed has failed": before is not A.BROKEN or after is not A.INTERRUPTED,
        "what is no cause changes nothing": before is after
        or happening is not H.INTERRUPT
        or before is A.WORKING,
    }
    return [rule for rule, holds in rules.items() if not holds]


def broken_edges(table: Table = TRANSITIONS) -> list[str]:
    """The rules that a table breaks, each with the edge that does."""
    return [
        f"{before.name} + {happening.name} -> {after.name}: {rule}"
        for before, edges in table.items()
        for happening, after in edges.items()
        for rule in broken_rules(before, happening, after)
    ]


def with_edge(before: Activation, happening: Happening, after: Activation) -> Table:
    """The table with one edge more, or another."""
    return {**TRANSITIONS, before: {**TRANSITIONS[before], happening: after}}
