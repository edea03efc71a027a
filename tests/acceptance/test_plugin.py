import pytest

from tools.soak_record import TESTS_HEADING

PLUGIN = "tests.acceptance.plugin"

LIST = """
[[item]]
id = "R1"
text = "a promise that is kept"
status = "done"

[[item]]
id = "R2"
text = "a promise for soon"
status = "next"

[[item]]
id = "R3"
text = "a promise for some day"
status = "later"
"""
ON_THE_WIRE = LIST.replace('"a promise that is kept"', '"a promise of HTTP"\nwire = true')


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """A small suite of its own, with one item of each status."""
    pytester.makeini(
        '[pytest]\ntestpaths = "."\nacceptance_items = items\nacceptance_soak = soak.md\n'
        'acceptance_wire = surfaces\naddopts = -m "not soak"\nmarkers = soak\n'
    )
    pytester.mkdir("items").joinpath("list.toml").write_text(LIST)
    return pytester


def run(suite: pytest.Pytester, source: str, *args: str) -> pytest.RunResult:
    """Run the suite with one test module."""
    suite.makepyfile(test_sample=source)
    return suite.runpytest("-p", PLUGIN, *args)


def record(suite: pytest.Pytester, result: str) -> None:
    """Let the soak's record have a row of a test."""
    row = f"| part | test_sample.test_kept | R1 | {result} |"
    (suite.path / "soak.md").write_text(f"{TESTS_HEADING}\n|---|---|---|---|\n{row}\n")


def is_held(result: pytest.RunResult) -> bool:
    """Whether the run says nothing against an item, and succeeds."""
    held = "done, but not held" not in result.stdout.str()
    assert held == (result.ret is pytest.ExitCode.OK)
    return held


NAMED = 'def test_kept():\n    """R1: it holds."""\n'
UNNAMED = 'def test_other():\n    """Something else."""\n'
ALSO_NAMED = 'def test_also():\n    """R1: it holds here too."""\n'


def marked(marker: str, source: str = NAMED) -> str:
    """Put a mark on a test."""
    return f"import pytest\n@pytest.mark.{marker}\n{source}\n"


def test_a_done_item_named_by_a_passing_test_is_fine(suite: pytest.Pytester) -> None:
    """A full run in which every done item is held succeeds and says where the lists stand."""
    result = run(suite, NAMED)
    assert is_held(result)
    result.stdout.fnmatch_lines(["acceptance: 1 done, 1 next, 1 later"])


def test_a_class_docstring_names_items_too(suite: pytest.Pytester) -> None:
    """The docstring of a test's class counts for each of its tests."""
    assert is_held(
        run(suite, 'class TestAll:\n    """R1."""\n    def test_it(self):\n        pass\n')
    )


def test_a_done_item_that_no_test_names_fails_the_run(suite: pytest.Pytester) -> None:
    """A done item without a test fails an otherwise green run and is listed with its text."""
    result = run(suite, UNNAMED)
    assert not is_held(result)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*done, but not held*", "R1 a promise that is kept [[]no test names it[]]"]
    )


@pytest.mark.parametrize(
    ("marker", "reason"),
    [
        ('skip(reason="x")', "skipped"),
        ('xfail(reason="x")', "xfailed"),
        ('xfail(reason="x", raises=ValueError)', "xfailed"),
        ("soak", "not in the soak's record"),
    ],
    ids=["skipped", "passed against expectation", "xfailed", "left out"],
)
def test_every_test_that_names_a_done_item_must_pass(
    suite: pytest.Pytester, marker: str, reason: str
) -> None:
    """One that was skipped, expected to fail or left out is one too many, whatever others say."""
    body = "    raise ValueError\n" if "raises" in marker else ""
    result = run(suite, ALSO_NAMED + marked(marker, NAMED + body))
    assert not is_held(result)
    result.stdout.fnmatch_lines(
        [f"R1 a promise that is kept [[]test_sample.py::test_kept: {reason}[]]"]
    )


def test_one_failing_test_is_enough(suite: pytest.Pytester) -> None:
    """An item whose other tests pass is listed with the one that does not."""
    result = run(suite, ALSO_NAMED + NAMED + "    raise ValueError\n")
    result.assert_outcomes(passed=1, failed=1)
    assert not is_held(result)
    result.stdout.fnmatch_lines(["R1 * [[]test_sample.py::test_kept: failed[]]"])


def test_one_failing_variant_is_enough(suite: pytest.Pytester) -> None:
    """A test with parameters holds an item if it passes with all of them."""
    source = 'def test_kept(n):\n    """R1."""\n    assert n\n'
    result = run(suite, marked('parametrize("n", [1, 0])', source))
    assert not is_held(result)
    result.stdout.fnmatch_lines(["R1 * [[]test_sample.py::test_kept[[]0[]]: failed[]]"])


def test_a_test_whose_teardown_fails_shows_nothing(suite: pytest.Pytester) -> None:
    """A test has passed when set-up, call and teardown have."""
    fixture = "import pytest\n@pytest.fixture\ndef f():\n    yield\n    assert False\n"
    result = run(suite, fixture + NAMED.replace("test_kept()", "test_kept(f)"))
    assert not is_held(result)


# What only the soak runs


@pytest.mark.parametrize(
    ("row", "held"),
    [("passed", True), ("passed: p99 5 ms", True), ("failed", False), ("skipped", False)],
)
def test_a_test_of_the_soak_counts_as_its_record_says(
    suite: pytest.Pytester, row: str, held: bool
) -> None:
    """By its last run that was recorded."""
    record(suite, row)
    assert is_held(run(suite, marked("soak") + UNNAMED)) == held


@pytest.mark.parametrize(
    ("row", "held"), [(None, True), ("passed", True), ("failed", False)], ids=str
)
def test_a_long_version_counts_beside_the_short_one(
    suite: pytest.Pytester, row: str | None, held: bool
) -> None:
    """A short version that passes is enough while the soak was not run, but not if it failed."""
    if row is not None:
        record(suite, row)
    variants = 'parametrize("n", [1, pytest.param(9, marks=pytest.mark.soak)])'
    result = run(suite, marked(variants, NAMED.replace("()", "(n)")))
    assert is_held(result) == held


def test_a_row_of_a_test_that_is_gone_holds_nothing(suite: pytest.Pytester) -> None:
    """The record is of tests that exist."""
    record(suite, "passed")
    assert not is_held(run(suite, UNNAMED))


# What speaks of HTTP or a channel


def test_an_item_of_the_wire_needs_a_test_over_the_wire(suite: pytest.Pytester) -> None:
    """A test below the surfaces is not enough; with one in their folder it is held."""
    (suite.path / "items" / "list.toml").write_text(ON_THE_WIRE)
    below = run(suite, NAMED)
    assert not is_held(below)
    below.stdout.fnmatch_lines(["R1 a promise of HTTP [[]no test over the wire names it[]]"])
    suite.mkdir("surfaces").joinpath("test_surface.py").write_text(ALSO_NAMED)
    assert is_held(run(suite, NAMED))


def test_a_test_over_the_wire_must_pass_as_well(suite: pytest.Pytester) -> None:
    """A skipped one leaves the item without."""
    (suite.path / "items" / "list.toml").write_text(ON_THE_WIRE)
    suite.mkdir("surfaces").joinpath("test_surface.py").write_text(
        marked('skip(reason="x")', ALSO_NAMED)
    )
    assert not is_held(run(suite, NAMED))


# Names, parts and processes


@pytest.mark.parametrize(
    ("source", "row", "held"),
    [
        (NAMED, None, True),
        (UNNAMED, None, False),
        (ALSO_NAMED + marked('skip(reason="x")'), None, False),
        (ALSO_NAMED + marked("soak"), None, False),
        (ALSO_NAMED + marked("soak"), "passed", True),
    ],
    ids=["passed", "unnamed", "skipped", "left out", "soaked"],
)
def test_it_is_the_same_when_tests_run_in_other_processes(
    suite: pytest.Pytester, source: str, row: str | None, held: bool
) -> None:
    """What workers have shown counts for the run as a whole, and for none of them alone."""
    if row is not None:
        record(suite, row)
    suite.makepyfile(test_other=UNNAMED)
    result = run(suite, source, "-n", "1" if row else "2")
    assert is_held(result) == held
    result.stdout.fnmatch_lines(["acceptance: 1 done, 1 next, 1 later"])


@pytest.mark.parametrize("args", [(), ("-n", "1")], ids=" ".join)
def test_naming_an_item_that_does_not_exist_is_a_failure(
    suite: pytest.Pytester, args: tuple[str, ...]
) -> None:
    """An unknown number fails the test that names it, and is told."""
    result = run(suite, NAMED + 'def test_wrong():\n    """R99: no such thing."""\n', *args)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["*ERROR at setup of test_wrong*", "this test names R99, in no acceptance list"]
    )


@pytest.mark.parametrize(
    "args",
    [
        ("-k", "other"),
        ("-m", "not nothing"),
        ("test_sample.py",),
        ("test_sample.py::test_other",),
        ("--collect-only",),
        ("--deselect", "test_sample.py::test_x"),
    ],
    ids=" ".join,
)
def test_a_partial_run_does_not_complain(suite: pytest.Pytester, args: tuple[str, ...]) -> None:
    """A run of a part of the suite says nothing about items that the rest of it holds."""
    assert is_held(run(suite, UNNAMED, *args))
