"""The life of one activation of a run, as the process that executes it knows it.

                     interrupt, break, drain
        WORKING ──────────────────────────────► INTERRUPTED, BROKEN, DRAINING
           │                                         │            │
    return │                                  return │      force │ (not while draining)
           ▼                                         ▼            ▼
        ENDING ◄────────────────── return ────────────────── FORCING
           │      LETTING_GO (of DRAINING)                        │
     ended │           │ fence                              ended │
           ▼           ▼                                          ▼
         OVER ◄──────────────────── return ───────────── LEFT_BEHIND, FENCED

Two things go on at once: the entry works, and the run has, or has not yet, an end. Either can be
over first. An entry that is told to stop may shield itself, or be a process that is hard to kill:
its run ends without it. Another activation may take the run over while the entry still works. A
host may drain while the entry is being canceled. With a flag for each of these, any combination
can be written down and most make no sense; so here is one state, and a table of what can happen
in it. ``advance`` is the only way from one state to the next, and refuses what is not in the table.

The rules of precedence are edges:

- A drain wins over a cancel, a time limit and a failure of ours: DRAINING stays DRAINING, and the
  activation lets go of the run. The next one finds the cancel request in the log.
- An end that is on its way wins over a drain: ENDING and FORCING stay what they are.
- A failure of ours wins over a cancel: INTERRUPTED becomes BROKEN and never the other way round.
- An activation that is not in charge, or whose run has ended, says nothing more: from FENCED,
  LEFT_BEHIND and OVER no edge leads to a state that speaks.
- A run is ended without its entry only after the entry was told to stop: WORKING has no FORCE.
- An entry ends once: states after its end have no RETURN.

What may come late changes nothing and has an edge that leads nowhere: the host drains, or a cancel
request arrives, while an execution says its last word.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

_ENTRY_IS_OVER: Final = frozenset({"ENDING", "LETTING_GO", "OVER"})
_SILENT: Final = frozenset({"LEFT_BEHIND", "FENCED", "OVER"})
_HEARD: Final = frozenset({"WORKING", "INTERRUPTED", "BROKEN", "DRAINING"})
_LETTING_GO: Final = frozenset({"DRAINING", "LETTING_GO"})


class Activation(Enum):
    """Where an activation stands."""

    WORKING = "the entry is at work"
    INTERRUPTED = "the entry was told to stop: by a cancel request or its time limit"
    BROKEN = "the entry was told to stop: what belongs to its execution has failed"
    DRAINING = "the entry was told to stop: the next host goes on with the run"
    FORCING = "the end of the run is on its way to the log, without its entry"
    LEFT_BEHIND = "the run has ended, and the entry is still at work"
    FENCED = "another activation is in charge, or none, and the entry is still at work"
    ENDING = "the entry is over, and the end of the run is on its way to the log"
    LETTING_GO = "the entry is over, and the run is being let go of"
    OVER = "the entry is over, and nothing is left to say"

    __hash__ = object.__hash__  # that of an enumeration is slow

    def __init__(self, _: str) -> None:
        """Know once what is asked often.

        ``entry_is_at_work``: the entry was called and has not come to its end. ``is_stopping``: it
        is at work although it was told to stop. ``hears_its_entry``: what the entry reports and
        asks for still counts. ``is_silent``: it may say nothing more to the run. ``lets_go``: its
        last word is that it lets go, and not the end of the run.
        """
        self.entry_is_at_work = self.name not in _ENTRY_IS_OVER
        self.is_stopping = self.entry_is_at_work and self.name != "WORKING"
        self.hears_its_entry = self.name in _HEARD
        self.is_silent = self.name in _SILENT
        self.lets_go = self.name in _LETTING_GO


class Happening(Enum):
    """What can happen to an activation."""

    INTERRUPT = "a cancel request or the time limit interrupts the entry"
    BREAK = "something that belongs to the execution fails"
    DRAIN = "the host lets go of what it executes"
    FENCE = "the activation is not in charge any more"
    FORCE = "the last deadline has passed: nobody waits for the entry"
    RETURN = "the entry is over: it returned, raised, or stopped"
    ABANDON = "the entry is over because its process goes down"
    ENDED = "the run has ended"

    __hash__ = object.__hash__


class Illegal(Exception):
    """Something happened to an activation that cannot happen in its state: a bug of ours."""

    def __init__(self, state: Activation, happening: Happening) -> None:
        """Name both."""
        super().__init__(f"{happening.name} cannot happen to an activation that is {state.name}")
        self.state = state
        self.happening = happening


_A, _H = Activation, Happening
_AT_WORK: Final = {
    _H.FENCE: _A.FENCED,
    _H.ENDED: _A.LEFT_BEHIND,
    _H.RETURN: _A.ENDING,
    _H.ABANDON: _A.OVER,
}


def _late(state: Activation, *happenings: Happening) -> dict[Happening, Activation]:
    """Give the edges of what may come late and changes nothing."""
    return dict.fromkeys(happenings, state)


TRANSITIONS: Final[Mapping[Activation, Mapping[Happening, Activation]]] = {
    _A.WORKING: {
        _H.INTERRUPT: _A.INTERRUPTED,
        _H.BREAK: _A.BROKEN,
        _H.DRAIN: _A.DRAINING,
        **_AT_WORK,
    },
    _A.INTERRUPTED: {
        **_late(_A.INTERRUPTED, _H.INTERRUPT),
        _H.BREAK: _A.BROKEN,
        _H.DRAIN: _A.DRAINING,
        _H.FORCE: _A.FORCING,
        **_AT_WORK,
    },
    _A.BROKEN: {
        **_late(_A.BROKEN, _H.INTERRUPT, _H.BREAK),
        _H.DRAIN: _A.DRAINING,
        _H.FORCE: _A.FORCING,
        **_AT_WORK,
    },
    _A.DRAINING: {
        **_late(_A.DRAINING, _H.INTERRUPT, _H.BREAK, _H.DRAIN),
        **_AT_WORK,
        _H.RETURN: _A.LETTING_GO,
        _H.ABANDON: _A.LETTING_GO,
    },
    _A.FORCING: {**_late(_A.FORCING, _H.INTERRUPT, _H.BREAK, _H.DRAIN), **_AT_WORK},
    _A.LEFT_BEHIND: {
        **_late(_A.LEFT_BEHIND, _H.BREAK, _H.DRAIN, _H.FENCE, _H.ENDED),
        _H.RETURN: _A.OVER,
        _H.ABANDON: _A.OVER,
    },
    _A.FENCED: {
        **_late(_A.FENCED, _H.BREAK, _H.DRAIN, _H.FENCE, _H.ENDED),
        _H.RETURN: _A.OVER,
        _H.ABANDON: _A.OVER,
    },
    _A.ENDING: {
        **_late(_A.ENDING, _H.INTERRUPT, _H.BREAK, _H.DRAIN),
        _H.FENCE: _A.OVER,
        _H.ENDED: _A.OVER,
    },
    _A.LETTING_GO: {
        **_late(_A.LETTING_GO, _H.INTERRUPT, _H.BREAK, _H.DRAIN),
        _H.FENCE: _A.OVER,
        _H.ENDED: _A.OVER,
    },
    _A.OVER: _late(_A.OVER, _H.BREAK, _H.DRAIN, _H.FENCE, _H.ENDED),
}


def advance(state: Activation, happening: Happening) -> Activation:
    """Give the state after something has happened; what cannot happen is refused."""
    try:
        return TRANSITIONS[state][happening]
    except KeyError:
        raise Illegal(state, happening) from None
