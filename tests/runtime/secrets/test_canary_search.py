"""The search for a canary finds it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from perdure.runtime.kernel.listing import ListingFile
from perdure.runtime.runs.index import RUN_LISTING
from tests.runtime.secrets import canary
from tests.runtime.secrets.canary import CANARY


def test_the_search_looks_into_files_and_directories(tmp_path: Path) -> None:
    """By contents and by name, in every form."""
    for number, form in enumerate(canary.FORMS):
        (tmp_path / f"{number}").write_text(f"x{form}x", "utf-8")
    assert len(canary.in_files(tmp_path)) == 4
    with closing(ListingFile(RUN_LISTING)) as tables:
        tables.open()
        with tables.writing() as database:
            database.execute("INSERT INTO totals VALUES (?, 1)", (CANARY,))
        assert canary.in_listing(tables)
