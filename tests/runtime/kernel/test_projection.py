"""Projections: files that may be thrown away, each with a place in its log."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from perdure.eventlog import MemoryStore
from perdure.eventlog.record import START, Mark
from perdure.runtime.kernel.projection import Projection, ProjectionFile, is_damage

SCHEMA = ("CREATE TABLE words (word TEXT)", "CREATE INDEX words_in_order ON words (word)")


def opened(path: Path | str, version: int = 1) -> ProjectionFile:
    """Open a projection of words."""
    return ProjectionFile(path, SCHEMA, version)


def words(projection: Projection) -> list[str]:
    """Give all words."""
    with projection.reading() as database:
        return [word for (word,) in database.execute("SELECT word FROM words ORDER BY word")]


def add(projection: ProjectionFile, word: str) -> None:
    """Add a word."""
    with projection.writing() as database:
        database.execute("INSERT INTO words VALUES (?)", (word,))


@pytest.fixture
def projection(tmp_path: Path) -> Iterator[ProjectionFile]:
    """Give a projection with a word in it."""
    with closing(opened(tmp_path / "words.db")) as projection:
        add(projection, "kept")
        yield projection


def test_what_was_written_is_there_again(projection: ProjectionFile, tmp_path: Path) -> None:
    """A file is kept as long as its format is the same; another one is thrown away."""
    projection.close()
    with closing(opened(tmp_path / "words.db")) as again:
        assert words(again) == ["kept"]
    with closing(opened(tmp_path / "words.db", version=2)) as newer:
        assert words(newer) == []


def test_a_write_is_all_or_nothing(projection: ProjectionFile) -> None:
    """Words and the place mark change together."""
    with suppress(ZeroDivisionError), projection.writing() as database:
        database.execute("INSERT INTO words VALUES ('lost')")
        projection.move_to("generation", START)
        raise ZeroDivisionError
    assert words(projection) == ["kept"]
    with projection.reading() as database:
        assert database.execute("SELECT * FROM place").fetchall() == []


def test_a_place_is_one_in_its_own_log(projection: ProjectionFile) -> None:
    """In another log there is none, nor where the log does not reach so far."""
    store, other = MemoryStore(), MemoryStore("f" * 16)
    assert projection.place(store) is None
    with projection.writing():
        projection.move_to(store.generation, START)
        assert projection.place(store) == START  # whoever writes may ask
    assert projection.place(other) is None
    with projection.writing():
        projection.move_to(store.generation, Mark(1, b"e" * 16))
    assert projection.place(store) is None


def test_a_file_that_was_half_made_is_made(tmp_path: Path) -> None:
    """Whoever made it was stopped between two tables."""
    path = tmp_path / "words.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE place (generation TEXT)")
    with closing(opened(path)) as projection:
        assert words(projection) == []


def test_a_file_that_cannot_be_made_is_not_half_made(tmp_path: Path) -> None:
    """All tables are made, or none."""
    path = tmp_path / "words.db"
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        ProjectionFile(path, (*SCHEMA, "CREATE INDEX i ON nowhere (word)"), 1)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT * FROM sqlite_master").fetchall() == []


def test_a_rebuilt_projection_is_empty(projection: ProjectionFile) -> None:
    """And works on."""
    projection.rebuild()
    assert words(projection) == []
    add(projection, "new")
    assert words(projection) == ["new"]


def test_nobody_asks_a_file_while_it_is_rebuilt(
    projection: ProjectionFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Questions wait until there is a file again."""
    free: list[bool] = []

    def is_free() -> bool:
        acquired = projection._lock.acquire(blocking=False)
        if acquired:
            projection._lock.release()
        return acquired

    def open_(_: ProjectionFile) -> sqlite3.Connection:
        with ThreadPoolExecutor() as threads:
            free.append(threads.submit(is_free).result())
        return sqlite3.connect(":memory:")

    monkeypatch.setattr(ProjectionFile, "_open", open_)
    projection.rebuild()
    assert free == [False]


@pytest.mark.parametrize(
    ("code", "damage"),
    [
        (None, True),
        (sqlite3.SQLITE_CORRUPT, True),
        (sqlite3.SQLITE_CORRUPT_INDEX, True),
        (sqlite3.SQLITE_NOTADB, True),
        (sqlite3.SQLITE_ERROR, True),
        (sqlite3.SQLITE_FULL, False),
        (sqlite3.SQLITE_BUSY, False),
        (sqlite3.SQLITE_READONLY, False),
        (sqlite3.SQLITE_IOERR_WRITE, False),
    ],
)
def test_damage_is_told_from_trouble_that_passes(code: int | None, damage: bool) -> None:
    """Only a file that is broken or not ours may be thrown away."""
    error = sqlite3.DatabaseError("wrong")
    if code is not None:
        error.sqlite_errorcode = code
    assert is_damage(error) is damage


def test_trouble_with_the_disk_is_no_damage() -> None:
    """A file that cannot be removed, for example."""
    assert not is_damage(PermissionError())
