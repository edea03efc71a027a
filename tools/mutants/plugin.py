"""A plugin of pytest: gives tests the private name under which mutmut looks for their id.

mutmut 3.8 reads ``Item._nodeid``, which pytest 9.2 has no more. Delete this when mutmut reads
``Item.nodeid``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Write the id of each test where mutmut looks for it."""
    for item in items:
        vars(item)["_nodeid"] = item.nodeid
