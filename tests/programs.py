"""A plugin of pytest: what becomes of a test that needs a program which is not installed.

``@pytest.mark.needs("jq")`` names programs for a test, ``require("strace")`` inside of it. On a
developer's machine the test is skipped. Continuous integration installs all of them (`.ci/run`),
so where ``CI`` is set a missing program is a failure.
"""

import os
import shutil

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line(
        "markers", "needs(*programs): skipped where one is missing, and failed if CI is set"
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Look for the programs that a test's marks name."""
    require(*(program for mark in item.iter_markers("needs") for program in mark.args))


def require(*programs: str) -> None:
    """Skip the test where a program is missing, but never in continuous integration."""
    missing = [program for program in programs if shutil.which(program) is None]
    if not missing:
        return
    message = f"not installed: {', '.join(missing)}"
    if os.environ.get("CI"):
        pytest.fail(message, pytrace=False)
    pytest.skip(message)
