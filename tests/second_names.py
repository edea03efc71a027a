"""A plugin of pytest: fails a session in which a module of Perdure was loaded by a second name.

In a checkout ``import runtime`` works as ``import perdure.runtime`` does, and makes every class
once more. A test of the wrong one fails in ways that nobody understands.
"""

import sys
from collections.abc import Iterator

import pytest

SECOND_NAMES = frozenset({"actors", "eventlog", "runtime"})


@pytest.fixture(scope="session", autouse=True)
def _one_name_for_each_module() -> Iterator[None]:
    """Look at the end, when everything was collected and run; each process of xdist looks."""
    yield
    found = sorted(SECOND_NAMES & sys.modules.keys())
    assert not found, f"imported without perdure. before it: {', '.join(found)}"
