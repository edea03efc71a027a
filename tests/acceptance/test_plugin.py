import pytest

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


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """A small suite of its own, with one item of each status."""
    pytester.makeini(
        '[pytest]\ntestpaths = "."\nacceptance_items = items\n'
        'addopts = -m "not soak"\nmarkers = soak\n'
    )
    pytester.mkdir("items").joinpath("list.toml").write_text(LIST)
    return pytester


def run(suite: pytest.Pytester, source: str, *args: str) -> pytest.RunResult:
    """Run the suite with one test module."""
    suite.makepyfile(test_sample=source)
    return suite.runpytest("-p", PLUGIN, *args)


NAMED = 'def test_kept():\n    """R1: it holds."""\n'
UNNAMED = 'def test_other():\n    """Something else."""\n'


def test_a_done_item_named_by_a_passing_test_is_fine(suite: pytest.Pytester) -> None:
    """A full run in which every done item is shown succeeds and says where the lists stand."""
    result = run(suite, NAMED)
    assert result.ret is pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["acceptance: 1 done, 1 next, 1 later"])


def test_a_class_docstring_names_items_too(suite: pytest.Pytester) -> None:
    """The docstring of a test's class counts for each of its tests."""
    result = run(suite, 'class TestAll:\n    """R1."""\n    def test_it(self):\n        pass\n')
    assert result.ret is pytest.ExitCode.OK


def test_a_done_item_that_no_test_names_fails_the_run(suite: pytest.Pytester) -> None:
    """A done item without a test fails an otherwise green run and is listed with its text."""
    result = run(suite, UNNAMED)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*shown by no passing test*", "R1 a promise that is kept"])


@pytest.mark.parametrize(
    "marker",
    ['skip(reason="x")', 'xfail(reason="x")', "soak"],
    ids=["skipped", "xfailed", "deselected"],
)
def test_a_done_item_needs_a_test_that_really_passed(suite: pytest.Pytester, marker: str) -> None:
    """A test that was skipped, expected to fail or left out by default shows nothing."""
    result = run(suite, f"import pytest\n@pytest.mark.{marker}\n{NAMED}\n{UNNAMED}")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["R1 a promise that is kept"])


def test_a_test_whose_teardown_fails_shows_nothing(suite: pytest.Pytester) -> None:
    """A test has passed when set-up, call and teardown have."""
    fixture = "import pytest\n@pytest.fixture\ndef f():\n    yield\n    assert False\n"
    result = run(suite, fixture + NAMED.replace("test_kept()", "test_kept(f)"))
    result.stdout.fnmatch_lines(["R1 a promise that is kept"])


@pytest.mark.parametrize(
    ("source", "code"),
    [(NAMED, pytest.ExitCode.OK), (UNNAMED, pytest.ExitCode.TESTS_FAILED)],
)
def test_it_is_the_same_when_tests_run_in_other_processes(
    suite: pytest.Pytester, source: str, code: int
) -> None:
    """What workers have shown counts for the run as a whole, and for none of them alone."""
    suite.makepyfile(test_other=UNNAMED)
    result = run(suite, source, "-n", "2")
    assert result.ret == code
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
    """Whoever runs a part of the suite is not told about items shown by the rest of it."""
    result = run(suite, UNNAMED, *args)
    assert result.ret is pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*shown by no passing test*")
