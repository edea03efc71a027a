from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel

from perdure.actors.run.core import FOLD
from perdure.eventlog import RealEnv, SqliteStore
from perdure.eventlog.cursor import check_of
from perdure.eventlog.snapshots import Snapshot, SnapshotFile, SnapshotKey
from perdure.eventlog.store import Bounds
from perdure.runtime.features import FEATURES
from perdure.runtime.kernel.completion import completed
from perdure.runtime.kernel.data_directory import DataDir
from perdure.runtime.kernel.local_node import open_local_node
from perdure.runtime.kernel.log_reader import LogReader, ReadableLog, open_reader
from perdure.runtime.kernel.node import Node
from perdure.runtime.kernel.principal import LOCAL, Principal
from perdure.runtime.plugins.loading import LoadedPlugins, LoadOutcome, PluginSource
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.runs.feature import RunsFeature
from tests.runtime.settings import settings_with
from tests.runtime.world import Example


def read(
    reader: LogReader, name: str, args: Mapping[str, Any], principal: Principal = LOCAL
) -> Any:
    """Ask an operation that reads, without an event loop."""
    return completed(reader.operations.call(principal, name, args))


READS = ("runs.get", "runs.export", "runs.history", "runs.logs", "runs.questions")


@asynccontextmanager
async def node(directory: Path, **options: Any) -> AsyncIterator[Node]:
    """A node on the log of a directory, on real files."""
    settings = settings_with(data_dir=str(directory))
    loaded = LoadedPlugins(
        {PluginSource(name="the test"): LoadOutcome({"test": declared(Example)})}
    )
    features = FEATURES.replacing(RunsFeature(loaded=loaded, **options))
    async with open_local_node(settings, features) as opened:
        yield opened


async def ended(opened: Node, entry_id: str, **args: Any) -> str:
    """Create a run and wait for its end."""
    request = {"plugin_id": "test", "entry_id": entry_id, "args": args, "mode": "sync"}
    answer = await opened.operations.call(LOCAL, "runs.create", request)
    return str(answer["run"]["run_id"])


async def test_beside_a_server_the_answers_are_the_same(tmp_path: Path) -> None:
    """Every operation that reads gives the same answer at the same place, now and in the past."""
    async with node(tmp_path) as opened:
        run_ids = [await ended(opened, "exports"), await ended(opened, "spam", n=300)]
        with open_reader(DataDir(tmp_path), FEATURES) as reader:
            listed = await opened.operations.call(LOCAL, "runs.list", {})
            assert read(reader, "runs.list", {}) == listed
            for run_id in run_ids:
                for name in READS:
                    asked = {"run_id": run_id}
                    answer = await opened.operations.call(LOCAL, name, asked)
                    assert read(reader, name, asked) == answer
                    past = asked | {"at": answer["cursor"]}
                    assert read(reader, name, past) == answer


async def test_what_was_read_is_true_at_its_cursor(tmp_path: Path) -> None:
    """A list that was read beside a server can be read again when things have moved on."""
    async with node(tmp_path) as opened:
        first = await ended(opened, "greet")
        with open_reader(DataDir(tmp_path), FEATURES) as reader:
            before = read(reader, "runs.list", {})
        await ended(opened, "greet")
    with open_reader(DataDir(tmp_path), FEATURES) as reader:
        assert len(read(reader, "runs.list", {})["runs"]) == 2
        again = read(reader, "runs.list", {"at": before["cursor"]})
        assert again == before
        assert [run["run_id"] for run in again["runs"]] == [first]


@pytest.mark.parametrize("look_back", [1, 3, 200])
async def test_the_last_log_lines_are_read_from_the_end(
    tmp_path: Path, look_back: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as are asked for, if there are, however many records lie between them."""
    monkeypatch.setattr("perdure.runtime.runs.reader.LOOK_BACK", look_back)
    async with node(tmp_path) as opened:
        run_id = await ended(opened, "spam", n=200, export_every=20)
    with open_reader(DataDir(tmp_path), FEATURES) as reader:
        whole = read(reader, "runs.logs", {"run_id": run_id})["lines"]
        assert len(whole) == 200
        for count in (1, 7, 150, 200, 500):
            last = read(reader, "runs.logs", {"run_id": run_id, "last": count})
            assert (last["lines"], last["next_after"]) == (whole[-count:], None)


async def test_log_lines_come_in_pages(tmp_path: Path) -> None:
    """One after the other, without a gap and without a line twice."""
    async with node(tmp_path) as opened:
        run_id = await ended(opened, "spam", n=200)
    with open_reader(DataDir(tmp_path), FEATURES) as reader:
        whole = read(reader, "runs.logs", {"run_id": run_id})
        lines, asked = list[Any](), {"run_id": run_id, "limit": 10}
        while True:
            page = read(reader, "runs.logs", asked)
            lines += page["lines"]
            if page["next_after"] is None:
                break
            assert len(page["lines"]) >= 10
            asked["after"] = page["next_after"]
        assert lines == whole["lines"]
        assert [line["text"] for line in lines] == [f"line {n}" for n in range(200)]


async def test_a_run_is_found_by_its_beginning_by_whoever_may_see_it(tmp_path: Path) -> None:
    """Other tenants' runs are none."""
    async with node(tmp_path) as opened:
        run_id = await ended(opened, "greet")
    with open_reader(DataDir(tmp_path), FEATURES) as reader:
        for beginning in (run_id[:6], "", run_id):
            found = read(reader, "runs.find", {"beginning": beginning})
            assert (found["run_ids"], found["more"]) == ([run_id], False)
        for beginning, principal in (("zz", LOCAL), (run_id[:6], Principal("other", "me"))):
            found = read(reader, "runs.find", {"beginning": beginning}, principal)
            assert (found["run_ids"], found["more"]) == ([], False)


async def test_snapshots_help_and_never_hurt(tmp_path: Path) -> None:
    """One that fits is used, one that cannot be read is passed over, and none is written."""
    async with node(tmp_path) as opened:
        run_id = await ended(opened, "greet")
    data = DataDir(tmp_path)
    with open_reader(data, FEATURES) as reader:
        answer = read(reader, "runs.get", {"run_id": run_id})
        generation, stream = reader.log.store.generation, f"run/{run_id}"
        check = reader.log.store.read_stream(stream, 0, Bounds()).records[0]
    kept = SnapshotFile(data.snapshots)
    kept.save(
        Snapshot(
            key=SnapshotKey("stream", stream, FOLD, generation),
            number=1,
            check=check_of(check.event_id),
            state=b"nonsense",
        )
    )
    kept.close()
    with open_reader(data, FEATURES) as reader:
        assert read(reader, "runs.get", {"run_id": run_id}) == answer
    data.snapshots.write_bytes(b"no database")
    with open_reader(data, FEATURES) as reader:
        assert read(reader, "runs.get", {"run_id": run_id}) == answer
    assert data.snapshots.read_bytes() == b"no database"


def test_what_would_wait_is_refused() -> None:
    """There is no event loop here: a mistake of ours, found at once."""

    async def waits() -> None:
        await trio.lowlevel.checkpoint()

    async def waits_for_nothing() -> int:
        return await answers()

    async def answers() -> int:
        return 7

    assert completed(waits_for_nothing()) == 7
    with pytest.raises(RuntimeError):
        completed(waits())


async def test_a_node_takes_up_only_what_it_is_told_to(tmp_path: Path) -> None:
    """And what that run has started; others are left as they are."""
    async with node(tmp_path) as opened:
        asked = {"plugin_id": "test", "entry_id": "deaf", "args": {}}
        left = [
            (await opened.operations.call(LOCAL, "runs.create", asked))["run"]["run_id"]
            for _ in range(2)
        ]
    with open_reader(DataDir(tmp_path), FEATURES) as reader:
        before = read(reader, "runs.get", {"run_id": left[1]})
    async with node(tmp_path, only=left[:1]) as opened:
        assert opened.busy == 1
    async with node(tmp_path, only=()) as opened:
        assert opened.busy == 0
    with open_reader(DataDir(tmp_path), FEATURES) as reader:
        assert read(reader, "runs.get", {"run_id": left[1]}) == before


def test_nothing_that_reads_can_write(tmp_path: Path) -> None:
    """The store is open for reading only."""
    SqliteStore.open(tmp_path / "log.db", env=RealEnv()).close()
    before = (tmp_path / "log.db").read_bytes()
    with open_reader(DataDir(tmp_path), FEATURES) as reader:
        assert isinstance(reader.log, ReadableLog)
        assert not reader.log.store.writable
    assert before == (tmp_path / "log.db").read_bytes()
