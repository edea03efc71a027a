from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.eventlog import MemoryStore, RealEnv, SqliteStore
from perdure.eventlog.store import Bounds
from perdure.eventlog.testing import example_record


@pytest.mark.parametrize("upto", [None, 9])
@pytest.mark.parametrize("read", ["read_all", "read_scope", "read_stream"])
def test_a_page_on_disk_is_of_the_same_moment_as_its_head(
    tmp_path: Path, read: str, upto: int | None
) -> None:
    """A commit of another connection, before any one statement of a read, is in both or in none."""
    path = tmp_path / "log.db"
    writer = SqliteStore.open(path, env=RealEnv())
    reader = SqliteStore.open_reader(path)
    reader.head()  # makes the one connection that all these reads use
    with reader.datastore.get_connection(commit=False) as connection:
        database = connection._sqlite_conn
    statements = 0

    def commit_before(number: int) -> Callable[[str], None]:
        def trace(_: str) -> None:
            nonlocal statements
            statements += 1
            if statements == number:
                version = writer.stream_state("session/1").version + 1
                writer.commit([example_record(version, "session/1", version)])

        return trace

    number = 0
    while number <= statements:
        statements, number = 0, number + 1
        database.set_trace_callback(commit_before(number))
        if read == "read_all":
            page = reader.read_all(0, Bounds(upto))
        else:
            page = getattr(reader, read)("session/1", 0, Bounds(upto))
        database.set_trace_callback(None)
        last = min(page.head.position, upto or page.head.position)
        assert [record.position for record in page.records] == list(range(1, last + 1))
    assert number > 3
    reader.close()
    writer.close()


@pytest.mark.parametrize("known", [0, 1])
@pytest.mark.parametrize("read", ["read_scope", "read_stream"])
def test_a_page_in_memory_is_of_the_same_moment_as_its_head(
    monkeypatch: pytest.MonkeyPatch, read: str, known: int
) -> None:
    """A commit that a read has to wait for is in its page, also if it makes the stream."""
    store = MemoryStore()
    records = [example_record(version, version=version) for version in (1, 2)]
    store.commit(records[:known])
    lock = store._database_lock

    @contextmanager
    def taken_by_a_commit_first() -> Iterator[None]:
        monkeypatch.setattr(store, "_database_lock", lock)
        store.commit(records[known:])
        with lock:
            yield

    monkeypatch.setattr(store, "_database_lock", taken_by_a_commit_first())
    page = getattr(store, read)("run/1", 0, Bounds())
    assert page == (records, False, records[-1].mark)
