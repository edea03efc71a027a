"""Projections: files that may be thrown away, each with a place in its log."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from threading import Event

import pytest

from perdure.eventlog import MemoryStore
from perdure.eventlog.record import START, Mark
from perdure.runtime.kernel.projection import (
    READERS,
    Projection,
    ProjectionFile,
    is_damage,
    move_place,
)

SCHEMA = ("CREATE TABLE words (word TEXT)", "CREATE INDEX words_in_order ON words (word)")


def opened(path: Path | str, version: int = 1) -> ProjectionFile:
    """Open a projection of words."""
    projection = ProjectionFile(path, SCHEMA, version)
    projection.open()
    return projection


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
        move_place(database, "generation", START)
        raise ZeroDivisionError
    assert words(projection) == ["kept"]
    with projection.reading() as database:
        assert database.execute("SELECT * FROM place").fetchall() == []


def test_a_place_is_one_in_its_own_log(projection: ProjectionFile) -> None:
    """In another log there is none, nor where the log does not reach so far."""
    store, other = MemoryStore(), MemoryStore("f" * 16)
    assert projection.place(store) is None
    with projection.writing() as database:
        move_place(database, store.generation, START)
    assert projection.place(store) == START
    assert projection.place(other) is None
    with projection.writing() as database:
        move_place(database, store.generation, Mark(1, b"e" * 16))
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
        ProjectionFile(path, (*SCHEMA, "CREATE INDEX i ON nowhere (word)"), 1).open()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT * FROM sqlite_master").fetchall() == []


def test_a_rebuilt_projection_is_empty(projection: ProjectionFile) -> None:
    """And works on."""
    projection.rebuild()
    assert words(projection) == []
    add(projection, "new")
    assert words(projection) == ["new"]


def test_queries_and_a_rebuild_wait_for_each_other(projection: ProjectionFile) -> None:
    """A file is thrown away when its last query is answered; the next asks the new one."""
    asked, answered, order = Event(), Event(), list[str]()

    def first() -> None:
        with projection.reading() as database:
            asked.set()
            answered.wait(10)
            order.extend(word for (word,) in database.execute("SELECT word FROM words"))

    def rebuild() -> None:
        projection.rebuild()
        order.append("rebuilt")

    with ThreadPoolExecutor() as threads:
        asking = threads.submit(first)
        assert asked.wait(10)
        rebuilding = threads.submit(rebuild)
        while not projection._readers._shut:
            pass
        second = threads.submit(words, projection)
        answered.set()
        asking.result(10)
        rebuilding.result(10)
        assert second.result(10) == []
    assert order == ["kept", "rebuilt"]


def test_several_read_at_once_while_one_writes(projection: ProjectionFile) -> None:
    """Each sees one moment; a write waits for none of them, nor they for it."""
    with ExitStack() as stack:
        readers = [stack.enter_context(projection.reading()) for _ in range(READERS)]
        seen = [each.execute("SELECT count(*) FROM words").fetchone() for each in readers]
        with projection.writing() as database:
            database.execute("INSERT INTO words VALUES ('new')")
        seen += [each.execute("SELECT count(*) FROM words").fetchone() for each in readers]
        assert set(seen) == {(1,)}
    assert words(projection) == ["kept", "new"]


def test_a_query_ends_when_its_answer_is_unwanted(projection: ProjectionFile) -> None:
    """However long it would take; the connection is as good as before."""
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT count(*) FROM n"
    looks = iter([False, False, True])
    with (
        pytest.raises(sqlite3.OperationalError, match="interrupted"),
        projection.reading(lambda: next(looks)) as database,
    ):
        database.execute(endless).fetchone()
    assert words(projection) == ["kept"]


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
