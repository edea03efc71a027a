import json
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tools.bench.__main__ import as_json, main
from tools.bench.benchmark import Benchmark, Figure, Setting, Target
from tools.bench.catalogue import BENCHMARKS
from tools.bench.eventlog_append import APPEND_MANY
from tools.bench.measure import Sample, Spread, quantile
from tools.bench.result import Result, run
from tools.bench.table import WIDTH, number, table


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Two rounds of the smallest possible append-100: one event for each appender."""
    setting = Setting(tmp_path_factory.mktemp("bench"), scale=0.001)
    return run(APPEND_MANY, setting, rounds=2, progress=lambda _: None)


def result_of(pairs: list[tuple[Sample, Sample]], **options: Any) -> Result:
    """A result that nobody measured."""

    def prepare(_: Setting) -> NoReturn:
        raise NotImplementedError

    benchmark = Benchmark(
        name="example", title="an example", baseline="another", prepare=prepare, **options
    )
    return Result(benchmark, pairs)


def test_a_benchmark_measures_both_sides_in_every_round(tiny: Result) -> None:
    """Each round holds a sample of ours and one of the baseline, of the same amount of work."""
    assert [(ours.count, baseline.count) for ours, baseline in tiny.pairs] == [(100, 100)] * 2
    assert all(sample.wall > 0 and sample.cpu > 0 for pair in tiny.pairs for sample in pair)


def test_a_benchmark_leaves_no_files(tmp_path: Path) -> None:
    """What a round writes is gone when it ends."""
    run(APPEND_MANY, Setting(tmp_path, scale=0.001), rounds=1, progress=lambda _: None)
    assert list(tmp_path.iterdir()) == []


def test_the_json_holds_every_figure_with_its_spread(tiny: Result) -> None:
    """A program finds median, quartiles, extremes and single values of each figure."""
    report = json.loads(json.dumps(as_json([tiny], {"cpus": 2}, 0.001)))
    assert set(report) == {"format", "machine", "scale", "benchmarks"}
    (benchmark,) = report["benchmarks"]
    assert (benchmark["name"], benchmark["rounds"], benchmark["count"]) == ("append-100", 2, 100)
    figures = {figure["figure"]: figure for figure in benchmark["figures"]}
    assert list(figures) == ["wall, s", "cpu, s", "appends/s", "cpu us each", "commits per append"]
    for side in ("ours", "baseline", "ratio"):
        spread = figures["appends/s"][side]
        assert set(spread) == {"median", "q1", "q3", "min", "max", "values"}
        assert spread["min"] <= spread["q1"] <= spread["median"] <= spread["q3"] <= spread["max"]
        assert len(spread["values"]) == 2
    assert figures["appends/s"]["target"] == ">= 0.2x"
    assert isinstance(figures["appends/s"]["reached"], bool)
    assert figures["wall, s"]["reached"] is None


def test_the_table_is_aligned_and_fits_the_screen(tiny: Result) -> None:
    """Columns of numbers end at the same place in every row, within 100 columns."""
    lines = table([tiny]).splitlines()
    assert max(map(len, lines)) <= WIDTH
    heading, *rows = lines[2 : lines.index("")]
    for column in ("ours", "baseline", "ratio"):
        end = heading.index(column) + len(column)
        assert {row[end - 1] for row in rows} == {"%"}
        assert all(row[end : end + 2].strip() == "" for row in rows)


def test_a_ratio_is_taken_round_by_round() -> None:
    """A machine that slows down in the middle of a run changes both sides, not their ratio."""
    fast, slow = Sample(wall=1, cpu=1, count=10), Sample(wall=9, cpu=9, count=10)
    twice_as_fast = [
        (fast, Sample(wall=2, cpu=2, count=10)),
        (slow, Sample(wall=18, cpu=18, count=10)),
    ]
    result = result_of(twice_as_fast, counted="things", rate=Target(">=", 2))
    rate = result.rows[2]
    assert rate.ratio == Spread((2.0, 2.0))
    assert rate.reached is True
    assert not result.missed


def test_a_missed_target_is_told() -> None:
    """A figure beyond its bound says "missed"; one without a target says nothing."""
    pair = (
        Sample(wall=1, cpu=1, count=1, figures={"a": 5, "b": 5}),
        Sample(wall=1, cpu=1, count=1),
    )
    figures = [Figure("a", "first", Target("<=", 4, of="ours")), Figure("b", "second")]
    result = result_of([pair], figures=figures)
    assert result.missed
    assert [row.reached for row in result.rows] == [None, None, False, None]
    first, second = table([result]).splitlines()[-4:-2]
    assert first.endswith("<= 4   missed")
    assert second.split() == ["second", "5.00", "+-", "0%"]


def test_a_comparison_of_both_sides_is_a_figure_of_ours() -> None:
    """What a benchmark computes from the two samples of a round has no baseline of its own."""
    pair = (Sample(wall=3, cpu=1, count=1), Sample(wall=1, cpu=1, count=1))
    result = result_of(
        [pair],
        figures=[Figure("more", "more wall")],
        compare=lambda ours, baseline: {"more": ours.wall - baseline.wall},
    )
    row = result.rows[-1]
    assert (row.ours, row.baseline, row.ratio) == (Spread((2.0,)), None, None)


@pytest.mark.parametrize(
    ("value", "text"),
    [(12345.6, "12,346"), (123.4, "123"), (12.34, "12.3"), (1.234, "1.23"), (0.1234, "0.123")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    """Numbers have about three digits that mean something."""
    assert number(value) == text


def test_quantiles_lie_between_neighbours() -> None:
    """A quantile between two values is taken in proportion."""
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert quantile([1.0], 0.99) == 1.0


def test_the_list_names_every_benchmark_once(capsys: pytest.CaptureFixture[str]) -> None:
    """``--list`` runs nothing and prints each name with its title."""
    assert main(["--list"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == [benchmark.name for benchmark in BENCHMARKS]
    assert len(set(names)) == len(names)


def test_an_unknown_name_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt name runs nothing and says which names there are."""
    with pytest.raises(SystemExit, match="2"):
        main(["append-1000"])
    assert "append-100," in capsys.readouterr().err


def test_a_missed_target_fails_only_a_check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A benchmark is a measurement; ``--check`` makes a missed target the exit code."""
    sample = Sample(wall=1, cpu=1, count=1)
    missed = result_of([(sample, sample)], counted="things", rate=Target(">=", 2)).benchmark
    monkeypatch.setattr("tools.bench.__main__.BENCHMARKS", [missed])
    monkeypatch.setattr(
        "tools.bench.__main__.run", lambda *_, **__: Result(missed, [(sample, sample)])
    )
    assert main(["--dir", str(tmp_path), "--json", str(tmp_path / "out.json")]) == 0
    assert main(["--dir", str(tmp_path), "--check"]) == 1
    assert json.loads((tmp_path / "out.json").read_text())["benchmarks"][0]["name"] == "example"
    assert "missed" in capsys.readouterr().out
