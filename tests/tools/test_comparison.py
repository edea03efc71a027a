from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.bench.__main__ import main
from tools.bench.checkout import Checkout, ForeignSources
from tools.bench.comparison import (
    Compared,
    Comparison,
    Measurement,
    MeasurementFailed,
    Side,
    compare,
)
from tools.bench.table import WIDTH
from tools.revision import UnknownRevision, checked_out, short_hash

# A repository as old ones were: packages at the top, which a newer editable install has as well.
BENCH = """
import argparse, json, pathlib, subprocess, sys, tempfile
import runtime

WHERE = "import runtime, pathlib; print(pathlib.Path(runtime.__file__).parents[1].resolve())"
parser = argparse.ArgumentParser()
parser.add_argument("name")
parser.add_argument("--quick", action="store_true")
for option in ("--rounds", "--dir", "--json"):
    parser.add_argument(option)
options = parser.parse_args()
if options.name == "broken":
    raise SystemExit("it does not work")
child = subprocess.run(
    [sys.executable, "-c", WHERE], cwd=tempfile.gettempdir(), capture_output=True, text=True
)
own = pathlib.Path(__file__).resolve().parents[2]
assert child.stdout.strip() == str(own), "a child process has other sources"
figures = [{"figure": f, "ours": {"median": runtime.SECONDS}} for f in ("wall, s", "cpu, s")]
figures += [{"figure": f, "ours": {"median": size}} for f, size in (("KiB", 5.0), ("MiB", 6.0))]
bench = {"name": options.name, "count": 10 if options.quick else 100, "figures": figures}
pathlib.Path(options.json).write_text(json.dumps({"format": 1, "benchmarks": [bench]}))
"""
CATALOGUE = """
import runtime
from types import SimpleNamespace
BENCHMARKS = [SimpleNamespace(name="fine"), SimpleNamespace(name="broken")]
"""


def git(repository: Path, *arguments: str) -> str:
    """What git says."""
    identity = ("-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", "-C", repository, *identity, *arguments], check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a benchmark in it, and a commit."""
    root = tmp_path_factory.mktemp("old")
    for package in ("runtime", "tools", "tools/bench"):
        (root / package).mkdir()
        (root / package / "__init__.py").touch()
    (root / "runtime" / "__init__.py").write_text("SECONDS = 7.0\n")
    (root / "tools" / "bench" / "__main__.py").write_text(BENCH)
    (root / "tools" / "bench" / "catalogue.py").write_text(CATALOGUE)
    (root / "link").symlink_to("runtime")
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "all")
    return root


def took(wall: float, cpu: float | None = None, count: int = 1) -> Measurement:
    """A measurement that nobody made."""
    return Measurement(wall=wall, cpu=wall if cpu is None else cpu, count=count)


def row(before: list[Measurement], after: list[Measurement]) -> Comparison:
    """A comparison of such measurements."""
    return Comparison("example", before, after)


class TestARow:
    """One benchmark on two sides."""

    def test_a_ratio_is_of_medians(self) -> None:
        """One round that was disturbed changes nothing."""
        measured = row([took(1), took(1), took(50)], [took(2), took(90), took(2)])
        assert (measured.ratio("wall"), measured.ratio("cpu")) == (2, 2)

    @pytest.mark.parametrize(
        ("wall", "cpu", "slower"),
        [
            (1.1, 1.05, ()),
            (1.11, 1.0, ("wall",)),
            (1.0, 1.06, ("cpu",)),
            (1.5, 1.5, ("wall", "cpu")),
            (0.5, 0.5, ()),
        ],
    )
    def test_more_than_a_twentieth_of_cpu_or_a_tenth_of_wall_time_is_slower(
        self, wall: float, cpu: float, slower: tuple[str, ...]
    ) -> None:
        """Each kind of time has a bound of its own; at the bound is not beyond it."""
        assert row([took(1, 1)], [took(wall, cpu)]).slower == slower

    def test_revisions_that_do_different_amounts_are_compared_for_as_much_work(self) -> None:
        """Twice the work in twice the time is no slower."""
        measured = row([took(1, count=100)], [took(2, count=200)])
        assert measured.ratio("wall") == 1

    def test_what_took_no_time_has_no_ratio(self) -> None:
        """And is not slower than nothing."""
        measured = row([took(1, 0)], [took(1, 3)])
        assert measured.ratio("cpu") is None
        assert measured.slower == ()
        assert "0  " in str(Compared(rows=[measured], only={}, rounds=1))


class TestAComparison:
    """Many benchmarks on two sides."""

    def measured(
        self, seconds: dict[Side, list[int]], names: dict[Side, list[str]], rounds: int = 3
    ) -> tuple[Compared, list[str]]:
        """A comparison in which a side takes such times in turn, and the order of its parts."""
        order: list[str] = []
        left = {side: iter(values) for side, values in seconds.items()}

        def measure(side: Side, name: str) -> Measurement:
            order.append(f"{name} {side}")
            return took(next(left[side]))

        return compare(names, measure, rounds=rounds, progress=lambda _: None), order

    def test_sides_take_turns(self) -> None:
        """Neither is always first, and both are measured as often."""
        names: dict[Side, list[str]] = {"before": ["a"], "after": ["a"]}
        _, order = self.measured({"before": [1] * 3, "after": [1] * 3}, names)
        assert order == ["a before", "a after", "a after", "a before", "a before", "a after"]

    def test_what_seems_slower_is_measured_again(self) -> None:
        """By all its rounds it may turn out not to be; the others are left alone."""
        names: dict[Side, list[str]] = {"before": ["a"], "after": ["a"]}
        compared, order = self.measured({"before": [1] * 6, "after": [2] + [1] * 5}, names, 1)
        assert len(order) == 4
        assert compared.is_slower  # 1.5 in the median of both rounds
        compared, order = self.measured({"before": [1] * 6, "after": [2, 2, 1, 1, 1, 1]}, names)
        assert len(order) == 12
        assert not compared.is_slower

    def test_what_only_one_side_has_is_listed_and_not_measured(self) -> None:
        """New benchmarks and old ones."""
        names: dict[Side, list[str]] = {"before": ["gone", "a"], "after": ["a", "new"]}
        compared, order = self.measured({"before": [1] * 3, "after": [1] * 3}, names)
        assert {line.split()[0] for line in order} == {"a"}
        assert "gone: only before\nnew: only after\n" in str(compared)
        assert not compared.is_slower

    def test_a_benchmark_that_fails_ends_its_row_and_not_the_comparison(self) -> None:
        """It is told with what it said, and counts as something that got worse."""

        def measure(side: Side, name: str) -> Measurement:
            if (side, name) == ("after", "a"):
                raise MeasurementFailed("no such thing")
            return took(1)

        names: dict[Side, list[str]] = {"before": ["a", "b"], "after": ["a", "b"]}
        compared = compare(names, measure, rounds=2, progress=lambda _: None)
        first, second = compared.rows
        assert first.failure == "failed after: no such thing"
        assert len(second.before) == len(second.after) == 2
        assert compared.is_slower
        assert "Failed: a." in str(compared)
        assert json.loads(json.dumps(compared.as_json()))["rows"][0]["failure"] == first.failure

    def test_a_benchmark_that_fails_once_is_measured_again(self) -> None:
        """A fault that shows now and then does not end a row."""
        failures = iter([MeasurementFailed("this time")])

        def measure(_: Side, __: str) -> Measurement:
            for failure in failures:
                raise failure
            return took(1)

        names: dict[Side, list[str]] = {"before": ["a"], "after": ["a"]}
        (row,) = compare(names, measure, rounds=2, progress=lambda _: None).rows
        assert row.failure is None
        assert len(row.before) == len(row.after) == 2

    def test_the_table_fits_the_screen_and_marks_what_is_slower(self) -> None:
        """Columns end at the same place; the last line names what is slower, and of how many."""
        rows = [
            row([took(12345.6)], [took(45678.9)]),
            Comparison("a" * 18, [took(0.0123)], [took(0.0123)]),
            Comparison("fails", failure="failed after: " + "x" * 200),
        ]
        lines = str(Compared(rows=rows, only={}, rounds=5)).splitlines()
        assert max(map(len, lines)) <= WIDTH
        heading, slow, same, failed = lines[1:5]
        assert heading.index("ratio") + len("ratio") == slow.index("%") + 1 == same.index("%") + 1
        assert slow.endswith("slower: wall, cpu")
        assert "1.00x" in same
        assert "slower" not in same
        assert failed.startswith("fails")
        assert lines[-1].startswith(
            "Slower by more than 10% in wall or 5% in cpu: example (5 rounds)"
        )


class TestARevision:
    """Files of another revision."""

    def test_it_is_there_for_the_length_of_a_block(self, old: Path, tmp_path: Path) -> None:
        """Links included; nothing is left, and git remembers nothing."""
        with checked_out("HEAD", repository=old, parent=tmp_path) as root:
            assert (root / "runtime" / "__init__.py").read_text() == "SECONDS = 7.0\n"
            assert (root / "link").is_symlink()
        assert list(tmp_path.iterdir()) == []
        assert len(git(old, "worktree", "list").splitlines()) == 1

    def test_it_is_gone_after_an_error_too(self, old: Path, tmp_path: Path) -> None:
        """Ctrl-C is one."""
        with (
            pytest.raises(KeyboardInterrupt),
            checked_out("HEAD", repository=old, parent=tmp_path),
        ):
            raise KeyboardInterrupt
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("revision", ["nothing", "", "--help", "HEAD:runtime"])
    def test_one_that_git_does_not_know_is_refused(self, old: Path, revision: str) -> None:
        """Before anything is written."""
        with pytest.raises(UnknownRevision, match="git knows no revision"):
            short_hash(revision, old)


class TestACheckout:
    """Sources that measure themselves."""

    def test_it_measures_its_own_sources_in_child_processes_too(self, old: Path) -> None:
        """Though the package that is installed here has modules of the same names."""
        checkout = Checkout.at(old)
        assert checkout.names == ("fine", "broken")
        assert checkout.measure("fine", samples=1) == took(7, count=100)
        assert checkout.measure("fine", samples=1, quick=True) == took(7, count=10)

    def test_a_benchmark_of_memory_is_measured_by_its_sizes(self, old: Path) -> None:
        """Its times say how long tracing takes, and are no subject."""
        measured = Checkout.at(old).measure("fine", samples=1, figures=("KiB", "MiB"))
        assert measured == took(5, 6, count=100)

    def test_a_benchmark_that_fails_says_why(self, old: Path) -> None:
        """With its last line."""
        with pytest.raises(MeasurementFailed, match=r"^it does not work$"):
            Checkout.at(old).measure("broken", samples=1)

    def test_sources_that_take_modules_from_elsewhere_are_refused(self, tmp_path: Path) -> None:
        """A module it lacks would be found in the package that is installed."""
        (tmp_path / "tools" / "bench").mkdir(parents=True)
        for package in ("tools", "tools/bench"):
            (tmp_path / package / "__init__.py").touch()
        (tmp_path / "tools" / "bench" / "catalogue.py").write_text("import perdure\nBENCHMARKS=[]")
        with pytest.raises(ForeignSources, match="would measure the code of"):
            Checkout.at(tmp_path)


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A directory in which nothing may be left."""
    directory = tmp_path / "scratch"
    directory.mkdir()
    yield directory
    assert list(directory.iterdir()) == []


def test_a_revision_is_compared_with_itself(
    scratch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The quickest benchmark, for real: figures of both sides, and the number of rounds."""
    report = tmp_path / "report.json"
    options = ["--quick", "--rounds", "1", "--dir", str(scratch), "--json", str(report)]
    assert main(["scope-busy", "--against", "HEAD", *options]) in {0, 1}
    printed = capsys.readouterr().out
    assert f"{short_hash('HEAD')} before, these files after" in printed
    assert "1 round," in printed
    (found,) = json.loads(report.read_text())["rows"]
    assert found["name"] == "scope-busy"
    assert all(found[of][side][0] > 0 for of in ("wall", "cpu") for side in ("before", "after"))


@pytest.fixture
def signals() -> Iterator[None]:
    """What a program does about signals is undone; Ctrl-C is heard, however this was started."""
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
@pytest.mark.usefixtures("signals")
def test_an_interrupted_comparison_leaves_no_files(
    monkeypatch: pytest.MonkeyPatch, scratch: Path, number: int, error: type[BaseException]
) -> None:
    """Neither the other revision nor what a benchmark wrote."""
    files: list[Path] = []

    def measure(*_: object, **__: object) -> None:
        files.extend(scratch.glob("*/tools"))
        os.kill(os.getpid(), number)

    monkeypatch.setattr(Checkout, "at", lambda root: Checkout(root, ("live-lag",)))
    monkeypatch.setattr(Checkout, "measure", measure)
    with pytest.raises(error):
        main(["live-lag", "--against", "HEAD", "--dir", str(scratch)])
    assert len(files) == 1


def test_an_unknown_revision_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is measured."""
    with pytest.raises(SystemExit, match="2"):
        main(["--against", "no-such-revision"])
    assert "git knows no revision 'no-such-revision'" in capsys.readouterr().err
