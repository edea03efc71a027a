"""Holds the acceptance lists and the tests to each other.

A test names the items it holds in its docstring or in its class's. A name that is in no list fails
it. At the end of a full run every `done` item must have been named by a test that passed.
Names travel with the reports of tests, so that tests may run in processes of their own.
"""

from collections import defaultdict
from pathlib import Path

import pytest

from tests.acceptance.ledger import Item, Status, load, named_in, summary

ITEMS_DIR = "acceptance_items"
NAMES = "acceptance"  # the property of a report that holds the names

# Options that leave tests out; with any of them nothing is said about items without a test.
NARROWING = (
    "keyword",
    "collectonly",
    "deselect",
    "ignore",
    "ignore_glob",
    "lf",
    "stepwise",
    "setuponly",
    "setupplan",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a suite say where its lists are."""
    parser.addini(
        ITEMS_DIR,
        help="directory of the acceptance lists, from the root of the suite",
        default="tests/acceptance/items",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Read the lists, once per run."""
    directory = config.rootpath / Path(config.getini(ITEMS_DIR))
    config.pluginmanager.register(Acceptance(load(directory)), "acceptance-ledger")


class Acceptance:
    """What one run of the suite shows about the items."""

    def __init__(self, items: dict[str, Item]) -> None:
        self.items = items
        self.named: dict[str, frozenset[str]] = {}
        self.outcomes: dict[str, set[str]] = defaultdict(set)
        self.unproven: list[Item] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Note which items a test names; a name in no list fails it."""
        owners = (getattr(item, "function", None), getattr(item, "cls", None))
        names = named_in(getattr(owner, "__doc__", None) for owner in owners)
        item.user_properties.append((NAMES, sorted(names)))
        unknown = ", ".join(sorted(names - self.items.keys()))
        if unknown:
            pytest.fail(f"this test names {unknown}, in no acceptance list", pytrace=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how each phase of a test ended; an expected failure proves nothing."""
        names = dict(report.user_properties).get(NAMES, [])
        assert isinstance(names, list)
        self.named[report.nodeid] = frozenset(names)
        expected_failure = hasattr(report, "wasxfail")
        self.outcomes[report.nodeid].add("xfail" if expected_failure else report.outcome)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fail a full run in which a done item was shown by no test."""
        config = session.config
        sees_a_part = hasattr(config, "workerinput")  # a worker of pytest-xdist
        if exitstatus not in _FINISHED or sees_a_part or not is_full_run(config):
            return
        proven = self._proven()
        self.unproven = [
            item
            for item in self.items.values()
            if item.status is Status.DONE and item.id not in proven
        ]
        if self.unproven:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where the lists stand, and which done items have no test."""
        if self.unproven:
            terminalreporter.section(
                "acceptance items done, but shown by no passing test", red=True
            )
            for item in self.unproven:
                terminalreporter.write_line(f"{item.id} {item.text}", red=True)
        terminalreporter.write_line(summary(self.items))

    def _proven(self) -> frozenset[str]:
        passed = (nodeid for nodeid, seen in self.outcomes.items() if seen == {"passed"})
        return frozenset[str]().union(*(self.named.get(nodeid, frozenset()) for nodeid in passed))


_FINISHED = (
    pytest.ExitCode.OK,
    pytest.ExitCode.TESTS_FAILED,
    pytest.ExitCode.NO_TESTS_COLLECTED,
)


def is_full_run(config: pytest.Config) -> bool:
    """Whether this run was asked for everything that a plain `pytest` runs."""
    return (
        list(config.args) == list(config.getini("testpaths"))
        and config.option.markexpr == _default_markexpr(config)
        and not any(getattr(config.option, name, None) for name in NARROWING)
    )


def _default_markexpr(config: pytest.Config) -> str:
    addopts: list[str] = config.getini("addopts")
    return addopts[addopts.index("-m") + 1] if "-m" in addopts else ""
