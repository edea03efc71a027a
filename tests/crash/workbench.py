"""A workbench: a program recorded at its work, and what power cuts would leave of it."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

from tests.crash.disk import What
from tests.crash.powercut import Recording
from tests.crash.soundness import WITHOUT
from tests.programs import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    Problems = Callable[[Path, Sequence[bytes]], Iterator[str]]


class Workbench:
    """Programs of one kind, recorded one after the other in one directory.

    ``problems`` says what is wrong with a directory, given what the programs had said.
    """

    def __init__(self, scratch: Path, module: str, problems: Problems) -> None:
        require("strace")
        self.directory = scratch / "recorded"
        self.directory.mkdir()
        self._scratch = scratch
        self._program = (sys.executable, "-m", f"tests.crash.{module}")
        self._problems = problems
        self._answers = scratch / "answers"
        self.recording = Recording(self.directory, self._answers, WITHOUT)

    def run(self, *options: str, inject: str | None = None) -> int:
        """Run the program and take in what it does; give its exit status."""
        command = [*self._program, str(self.directory), str(self._answers), *options]
        return self.recording.run(command, self._scratch / "trace", inject=inject)

    def run_after_kill(self, when: int, *options: str) -> int:
        """Kill the program at a sync and run it again; give the moment when that began.

        strace counts the syncs of each thread: if none comes so far, it is one sooner.
        """
        while self.run(inject=f"fsync:signal=KILL:when={when}") == 0:
            when -= 1
            assert when > 0
        first = len(self.recording.moments)
        assert self.run(*options) == 0
        return first

    def said(self, word: str = "ACK") -> int:
        """How many lines that begin so the programs have said."""
        said = (moment.text for moment in self.recording.moments if moment.what is What.SAID)
        return sum(line.startswith(word.encode()) for line in said)

    def violations(self, cuts: int, seed: int, *, first: int = 0) -> list[str]:
        """Cut the power so many times; say what is wrong afterwards."""
        return list(self.each_violation(cuts, seed, first=first))

    def each_violation(self, cuts: int, seed: int, *, first: int = 0) -> Iterator[str]:
        """Say one after the other, for whoever needs no more than one."""
        rebuilt = self._scratch / "rebuilt"
        for cut in self.recording.cuts(cuts, seed, first=first):
            shutil.rmtree(rebuilt, ignore_errors=True)
            rebuilt.mkdir()
            cut.write_to(rebuilt)
            where = f"seed {seed}, cut {cut.number} after moment {cut.place}"
            yield from (f"{where}: {problem}" for problem in self._problems(rebuilt, cut.said))
