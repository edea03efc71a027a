"""Holds the acceptance lists and the tests to each other.

A test names the items it holds in its docstring or in its class's. A name that is in no list fails
it. At the end of a full run every `done` item must be held: tests name it, and every one of them
passed. A test that was skipped or failed as expected did not pass. What the soak runs counts as
its record says. An item that speaks of HTTP or a channel needs a test over the wire, which is
one in the folders of surfaces. Names travel with the reports of tests, so that tests may run in
processes of their own.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.ledger import (
    PASSED,
    Item,
    Shown,
    load,
    named_in,
    not_held,
    summary,
)
from tools.soak_record import ITEMS, soaked_outcomes

ITEMS_DIR = "acceptance_items"
SOAK_RECORD = "acceptance_soak"
WIRE_DIRS = "acceptance_wire"
LEFT_OUT = "acceptance_left_out"  # what a worker of pytest-xdist says of the tests it left out

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
    """Let a suite say where its lists, its soak's record and its tests of surfaces are."""
    parser.addini(
        ITEMS_DIR,
        help="directory of the acceptance lists, from the root of the suite",
        default="tests/acceptance/items",
    )
    parser.addini(
        SOAK_RECORD, help="the page that keeps what the soak came to", default="docs/soak.md"
    )
    parser.addini(
        WIRE_DIRS,
        help="folders of tests that ask through a surface, from the root of the suite",
        type="args",
        default=["tests/runtime/http", "tests/runtime/websocket", "tests/runtime/server"],
    )


def pytest_configure(config: pytest.Config) -> None:
    """Read the lists and the record, once per run."""
    items = load(config.rootpath / Path(config.getini(ITEMS_DIR)))
    record = config.rootpath / Path(config.getini(SOAK_RECORD))
    soaked = soaked_outcomes(record.read_text("utf-8")) if record.exists() else {}
    wire = tuple(f"{folder}/" for folder in config.getini(WIRE_DIRS))
    config.pluginmanager.register(Acceptance(items, soaked, wire), "acceptance-ledger")


class Acceptance:
    """What one run of the suite shows about the items."""

    def __init__(
        self, items: dict[str, Item], soaked: dict[str, str], wire: tuple[str, ...]
    ) -> None:
        """Nothing has run."""
        self.items = items
        self.soaked = soaked
        self.wire = wire
        self.named: dict[str, frozenset[str]] = {}  # by test that ran
        self.outcomes: dict[str, set[str]] = defaultdict(set)
        self.left_out: dict[str, list[str]] = {}  # the same by test that the soak runs
        self.not_held: list[tuple[Item, str]] = []

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Note which items a test names."""
        item.user_properties.append((ITEMS, " ".join(sorted(_named_by(item)))))

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Note the tests that are left out; in a full run the soak runs them."""
        self.left_out |= {
            _without_parameters(item.nodeid): sorted(_named_by(item)) for item in items
        }

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Fail a test that names what is in no list."""
        unknown = ", ".join(sorted(_named_by(item) - self.items.keys()))
        if unknown:
            pytest.fail(f"this test names {unknown}, in no acceptance list", pytrace=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how each phase of a test ended; an expected failure proves nothing."""
        self.named[report.nodeid] = named_in([str(dict(report.user_properties).get(ITEMS, ""))])
        expected_failure = hasattr(report, "wasxfail")
        self.outcomes[report.nodeid].add("xfailed" if expected_failure else report.outcome)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take from a worker of pytest-xdist what it left out: only workers collect."""
        self.left_out |= getattr(node, "workeroutput", {}).get(LEFT_OUT, {})

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fail a full run in which a done item was not held."""
        config = session.config
        if hasattr(config, "workerinput"):  # a worker sees a part
            config.workeroutput[LEFT_OUT] = self.left_out  # type: ignore[attr-defined]
        elif exitstatus in _FINISHED and is_full_run(config):
            self.not_held = not_held(self.items.values(), [*self._ran(), *self._soaked()])
            if self.not_held:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where the lists stand, and which done items are not held."""
        if self.not_held:
            terminalreporter.section("acceptance items done, but not held", red=True)
            for item, reason in self.not_held:
                terminalreporter.write_line(f"{item.id} {item.text} [{reason}]", red=True)
        terminalreporter.write_line(summary(self.items))

    def _ran(self) -> list[Shown]:
        return [
            self._shown(test, self.named[test], " and ".join(sorted(seen - {PASSED})) or PASSED)
            for test, seen in self.outcomes.items()
        ]

    def _soaked(self) -> list[Shown]:
        """What the soak's record says, also of tests with a version that is in this run.

        A test that only the soak runs must be in the record.
        """
        ran = {_without_parameters(test): names for test, names in self.named.items()}
        left_out = {test: frozenset(names) for test, names in self.left_out.items()}
        shown = []
        for test, names in {**left_out, **ran}.items():
            outcome = self.soaked.get(_dotted(test))
            if outcome is not None or test not in ran:
                shown.append(self._shown(test, names, outcome or "not in the soak's record"))
        return shown

    def _shown(self, test: str, items: frozenset[str], outcome: str) -> Shown:
        wire = test.startswith(self.wire)
        return Shown(test=test, items=items, outcome=outcome, wire=wire)


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


def _named_by(item: pytest.Item) -> frozenset[str]:
    owners = (getattr(item, "function", None), getattr(item, "cls", None))
    return named_in(getattr(owner, "__doc__", None) for owner in owners)


def _without_parameters(nodeid: str) -> str:
    return nodeid.partition("[")[0]


def _dotted(test: str) -> str:
    """Give a test the name that reports have for it."""
    return test.replace("/", ".").replace(".py::", ".").replace("::", ".")
