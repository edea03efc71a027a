"""What a run of mutmut shows: which mutants were killed, which survived, which do not count.

A mutant is a function with one small change. A test that fails kills it; so does one that never
ends. A mutant that lives on shows a gap in the tests, unless it cannot be told from the original:
then it is excluded, by the exact change and with a reason. There are no patterns.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

KILLED: Final = frozenset({"killed", "timeout", "segfault"})
ENOUGH: Final = 0.99  # of the mutants that count
_FIELDS: Final = ("function", "before", "after", "reason")


class BadExclusion(ValueError):
    """An exclusion that says too little."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of one function, and what became of it."""

    name: str  # as mutmut calls it
    status: str
    before: str = ""  # the lines that were changed, as one line
    after: str = ""

    @property
    def is_killed(self) -> bool:
        """Whether a test noticed."""
        return self.status in KILLED

    @property
    def module(self) -> str:
        """Where it was made."""
        return self.name.rpartition(".")[0]

    @property
    def function(self) -> str:
        """The function that was changed, as people write it."""
        mangled = self.name.rpartition(".")[2].rpartition("__mutmut_")[0]
        method = mangled.removeprefix("x\u01c1").replace("\u01c1", ".")
        return f"{self.module}.{mangled.removeprefix('x_') if method == mangled else method}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """A change that no test can notice, and why."""

    function: str
    before: str
    after: str
    reason: str

    def covers(self, mutant: Mutant) -> bool:
        """Whether this is about that mutant."""
        theirs = (mutant.function, mutant.before, mutant.after)
        return (self.function, self.before, self.after) == theirs


def read_exclusions(text: str) -> tuple[Exclusion, ...]:
    """Read exclusions; refuse one that leaves out what it is about, or why."""
    exclusions = []
    for number, entry in enumerate(tomllib.loads(text).get("exclusion", ()), start=1):
        if set(entry) != set(_FIELDS) or not all(isinstance(part, str) for part in entry.values()):
            raise BadExclusion(f"exclusion {number} must have {', '.join(_FIELDS)}: {entry}")
        if not entry["reason"].strip():
            raise BadExclusion(f"exclusion {number} gives no reason: {entry}")
        exclusions.append(Exclusion(**entry))
    return tuple(exclusions)


def changed_lines(diff: str) -> tuple[str, str]:
    """Give what a unified diff takes away and what it puts there, each as one line."""
    lines = [line for line in diff.splitlines() if not line.startswith(("---", "+++"))]
    before, after = (
        " ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+"
    )
    return before, after


@dataclass(frozen=True)
class Score:
    """Mutants and what is excluded of them."""

    mutants: Sequence[Mutant]
    exclusions: Sequence[Exclusion]

    @cached_property
    def excluded(self) -> list[Mutant]:
        """Those that live on and may."""
        return [m for m in self.mutants if not m.is_killed and self._is_excluded(m)]

    @cached_property
    def survivors(self) -> list[Mutant]:
        """Those that live on and should not."""
        return [m for m in self.mutants if not m.is_killed and not self._is_excluded(m)]

    @cached_property
    def unused(self) -> list[Exclusion]:
        """Exclusions of nothing that lives on: the code has changed, or a test notices now."""
        return [e for e in self.exclusions if not any(e.covers(m) for m in self.excluded)]

    @property
    def counted(self) -> int:
        """How many mutants count."""
        return len(self.mutants) - len(self.excluded)

    @property
    def killed(self) -> int:
        """How many of them were killed."""
        return self.counted - len(self.survivors)

    @property
    def is_enough(self) -> bool:
        """Whether the tests notice enough. No mutants at all are not enough."""
        return self.counted > 0 and self.killed >= ENOUGH * self.counted

    def report(self) -> str:
        """Say all of it: survivors, idle exclusions, the score by module, the score."""
        lines = [f"survived: {m.function}\n  - {m.before}\n  + {m.after}" for m in self.survivors]
        lines += [
            f"excluded, but lives no more: {e.function}\n  - {e.before}\n  + {e.after}"
            for e in self.unused
        ]
        total = Counter(m.module for m in self.mutants)
        excluded = Counter(m.module for m in self.excluded)
        survived = Counter(m.module for m in self.survivors)
        for module, count in sorted(total.items()):
            counted = count - excluded[module]
            killed = counted - survived[module]
            lines.append(f"{module:30}{killed:6} of {counted:4}, {excluded[module]} excluded")
        share = self.killed / self.counted if self.counted else 0.0
        lines.append(
            f"{self.killed} of {self.counted} mutants were killed: {share:.1%}"
            f" (at least {ENOUGH:.0%}), {len(self.excluded)} excluded"
        )
        return "\n".join(lines) + "\n"

    def _is_excluded(self, mutant: Mutant) -> bool:
        return any(exclusion.covers(mutant) for exclusion in self.exclusions)
