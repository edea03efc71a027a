from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.crash import mutants
from tests.crash.answers import heard, unsettled
from tests.crash.disk import Name, What
from tests.crash.powercut import Recording
from tests.crash.soundness import LOG_NAME, WITHOUT, History, problems
from tests.programs import require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.crash.powercut import Cut

WRITER: Final = (sys.executable, "-m", "tests.crash.writing_child")
SAMPLE: Final = 10  # every tenth log verifies itself and is written on
MUTANT_CUTS: Final = 60


class Workbench:
    """A log recorded while it is written, and rebuilt as power cuts would leave it."""

    def __init__(self, scratch: Path) -> None:
        require("strace")
        self._scratch = scratch
        self._recorded = scratch / "recorded"
        self._recorded.mkdir()
        self.answers = scratch / "answers"
        self.recording = Recording(self._recorded, self.answers, WITHOUT)

    def write(self, *options: str, inject: str | None = None) -> int:
        """Run the writing program and take in what it does; give its exit status."""
        command = [*WRITER, str(self._recorded), "--answers", str(self.answers), *options]
        return self.recording.run(command, self._scratch / "trace", inject=inject)

    def violations(self, cuts: int, seed: int, *, first: int = 0) -> list[str]:
        """Cut the power so many times; say what is wrong with the logs afterwards."""
        return list(self.each_violation(cuts, seed, first=first))

    def each_violation(self, cuts: int, seed: int, *, first: int = 0) -> Iterator[str]:
        """Say one after the other, for whoever needs no more than one."""
        final = shutil.copytree(self._recorded, self._scratch / "final")
        history = History.of(final / LOG_NAME)
        for cut in self.recording.cuts(cuts, seed, first=first):
            for problem in self._problems(cut, history):
                yield f"seed {seed}, cut {cut.number} after moment {cut.place}: {problem}"

    def _problems(self, cut: Cut, history: History) -> list[str]:
        rebuilt = self._scratch / "rebuilt"
        shutil.rmtree(rebuilt, ignore_errors=True)
        rebuilt.mkdir()
        cut.write_to(rebuilt)
        thorough = cut.number % SAMPLE == 0
        return problems(rebuilt / LOG_NAME, heard(cut.said), history=history, thorough=thorough)


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    """A place to record and rebuild."""
    return Workbench(tmp_path)


APPENDERS, APPENDS, ROUNDS = 6, 20, 2
BUSY: Final = (
    *("--rounds", str(ROUNDS), "--appenders", str(APPENDERS), "--appends", str(APPENDS)),
    *("--checkpoint-bytes", "500000"),
)


@pytest.mark.parametrize("cuts", [pytest.param(100), pytest.param(20_000, marks=pytest.mark.soak)])
def test_no_power_cut_loses_an_acknowledged_record(bench: Workbench, cuts: int, seed: int) -> None:
    """Wherever the power is cut, the log opens as a prefix with every acknowledged record."""
    assert bench.write(*BUSY) == 0
    assert len(heard(said(bench.recording))) == ROUNDS * APPENDERS * APPENDS
    assert syncs_of(LOG_NAME, bench.recording) >= 6, "too few checkpoints to prove anything"
    assert bench.violations(cuts, seed) == []


@pytest.mark.parametrize("mutant", [*mutants.ALL])
def test_a_log_that_answers_too_early_is_found_out(
    bench: Workbench, mutant: str, seed: int
) -> None:
    """The harness sees acknowledged records vanish where a bug answers before the disk does."""
    assert bench.write(*BUSY, "--mutant", mutant) == 0
    violations = bench.each_violation(MUTANT_CUTS, seed)
    assert any("is lost" in violation for violation in violations), f"seed {seed}"


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("fdatasync:signal=KILL:when=12", id="killed before a sync"),
        pytest.param("fdatasync:error=EIO:when=12", id="a sync failed"),
    ],
)
def test_a_repeated_append_is_on_disk_before_it_is_answered(
    bench: Workbench, fault: str, seed: int
) -> None:
    """A record found at start-up may never have been synced: nobody hears of it before it is."""
    assert bench.write("--asks", "--appends", "100", inject=fault) != 0
    first, told = len(bench.recording.moments), len(said(bench.recording))
    asked = bench.answers.with_suffix(".first")
    bench.answers.rename(asked)
    assert unsettled(asked.read_bytes().splitlines(keepends=True))
    assert bench.write("--appends", "1", "--appenders", "1", "--repeat", str(asked)) == 0
    assert len(said(bench.recording)) > told + 1, "nothing was repeated"
    assert bench.violations(100, seed, first=first) == []


def said(recording: Recording) -> list[bytes]:
    """Everything that the recorded programs said."""
    return [moment.text for moment in recording.moments if moment.what is What.SAID]


def syncs_of(name: str, recording: Recording) -> int:
    """How often a file was synced."""
    changes = [moment.change for moment in recording.moments]
    nodes = {c.target for c in changes if isinstance(c, Name) and c.name == name}
    return sum(m.what is What.SYNC_BEGUN and m.node in nodes for m in recording.moments)
