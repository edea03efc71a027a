"""The remote side when servers die and connections break: each follow equals the log."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from perdure.eventlog.env import RealEnv
from perdure.eventlog.sqlite import SqliteStore
from perdure.runtime.client.address import Announced
from perdure.runtime.client.beside import open_beside
from perdure.runtime.client.client import Client, Delivery
from perdure.runtime.client.remote import open_remote
from perdure.runtime.features import FEATURES
from perdure.runtime.kernel.data_directory import DataDir
from perdure.runtime.kernel.errors import OperationError
from tests.runtime.client.sides import (
    PATIENCE,
    READING,
    Asked,
    cutting,
    events_in,
    remote_at,
    until,
)
from tests.runtime.server.here import server_here
from tests.runtime.server.process import server

GREET = {"plugin_id": "test", "entry_id": "greet", "args": {}}


def newest_in(deliveries: list[Delivery]) -> int:
    """The position of the last record that was delivered."""
    events = events_in(deliveries)
    return int(events[-1]["position"]) if events else 0


async def followed(client: Client) -> list[Any]:
    """The log as a follow delivers it, up to where it has caught up once."""
    async with client.follow("log", limit=5) as follow:  # frames that fit between two cuts
        return events_in(await until(follow, lambda seen: bool(seen) and seen[-1].live))


async def stored(data: Path) -> list[Any]:
    """The log as its file has it."""
    async with open_beside(DataDir(data), FEATURES) as reader:
        return await followed(reader)


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.soak)])
async def test_a_follow_goes_on_after_its_server_was_killed(tmp_path: Path, times: int) -> None:
    """Each record once and in order, through servers that are killed and come back elsewhere."""
    data = tmp_path / "data"
    where = Announced(DataDir(data))
    with server(data) as first:
        async with (
            open_remote(RealEnv(), where, READING, patience=PATIENCE) as client,
            client.follow("log", limit=7) as follow,
        ):
            run_id = first.start("count", to=5, delay=0)
            seen = await until(follow, lambda seen: bool(events_in(seen)))
            first.signal(signal.SIGKILL)
            first.wait()
            for _ in range(times):
                with server(data) as again:
                    assert (await client.call("runs.get", {"run_id": run_id}))["run"]
                    again.until(again.start("count", to=5, delay=0), "succeeded")
                    seen += await until(follow, lambda more: len(events_in(more)) > 4)
                    again.signal(signal.SIGKILL)
                    again.wait()
            with server(data), closing(SqliteStore.open_reader(data / "log.db")) as store:
                head = store.head().position
                known = newest_in(seen)
                seen += await until(follow, lambda more: (newest_in(more) or known) >= head)
    events = events_in(seen)
    assert len(events) >= head
    assert events == (await stored(data))[: len(events)]


@pytest.mark.parametrize(
    "seed", [1, 2, *[pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 43)]]
)
async def test_follows_through_connections_that_are_cut_at_any_byte(
    tmp_path: Path, seed: int
) -> None:
    """In the handshake, in a frame, between two: nothing twice, nothing left out."""
    async with server_here(tmp_path) as here, cutting(here.serving.url, seed, 8000) as proxy:
        proxy.is_cutting = False
        async with remote_at(proxy.url, patience=PATIENCE) as client:
            proxy.is_cutting = True
            asked = Asked(client, here)
            naps = [await asked.begun("nap", seconds=600) for _ in range(2)]
            for _ in range(5):
                await asked.ended("exports")
            client._connection.cut()  # type: ignore[union-attr]
            events, listed = list[Any](), set[str]()

            async def follow_log() -> None:
                events.extend(await followed(client))

            async def follow_runs() -> None:
                async with client.follow("runs", limit=1) as follow:
                    async for delivery in follow:
                        if delivery.restarted:
                            listed.clear()
                        listed.update(event["run_id"] for event in delivery.events)
                        if delivery.cursor is not None:
                            return

            with trio.fail_after(PATIENCE):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(follow_log)
                    nursery.start_soon(follow_runs)
                    for _ in range(5):
                        page = await client.call("runs.list", {"limit": 2})
                        assert len(page["runs"]) == 2
        assert events == await stored(tmp_path)
        assert listed == set(naps)
        assert proxy.cuts


async def lost_call(tmp_path: Path, operation: str, args: dict[str, Any]) -> tuple[Any, int]:
    """Make a call whose first answer is lost; give what came of it, and how many runs there are."""
    async with server_here(tmp_path) as here, cutting(here.serving.url, 0, 1) as proxy:
        proxy.is_cutting = False
        async with remote_at(proxy.url, patience=PATIENCE) as client:
            call = type(client._connection).call  # type: ignore[union-attr]
            lost = 0

            async def losing(self: Any, *asked: Any) -> Any:
                nonlocal lost
                answer = await call(self, *asked)
                if not lost:
                    lost += 1
                    self.cut()
                    await self.lost.wait()
                    raise trio.BrokenResourceError
                return answer

            outcome: Any
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(type(client._connection), "call", losing)
                try:
                    outcome = await client.call(operation, args)
                except OperationError as error:
                    outcome = error
            assert lost == 1
            return outcome, len((await client.call("runs.list", {}))["runs"])


async def test_a_lost_answer_of_a_reading_call_is_asked_for_again(tmp_path: Path) -> None:
    """Its caller does not notice."""
    outcome, _ = await lost_call(tmp_path, "runs.list", {})
    assert outcome["runs"] == []


async def test_a_lost_answer_of_a_writing_call_with_a_key_is_asked_for_again(
    tmp_path: Path,
) -> None:
    """The key makes it one run."""
    outcome, count = await lost_call(tmp_path, "runs.create", {**GREET, "idempotency_key": "k"})
    assert outcome["run"]["entry_id"] == "greet"
    assert count == 1


async def test_a_lost_answer_of_another_writing_call_is_told(tmp_path: Path) -> None:
    """It is not repeated; the error says that its outcome is not known and what to do."""
    outcome, count = await lost_call(tmp_path, "runs.create", GREET)
    assert outcome.code == "UNAVAILABLE"
    assert "whether it was done is not known" in outcome.message
    assert count == 1


async def test_a_server_that_stays_away_is_given_up(tmp_path: Path) -> None:
    """Follows and calls that wait, and later ones, are UNAVAILABLE; nothing hangs."""
    with server(tmp_path / "data") as process:
        async with remote_at(process.url, patience=0.2) as client, client.follow("log") as follow:
            await until(follow, bool)
            process.signal(signal.SIGKILL)
            process.wait()
            with trio.fail_after(PATIENCE):
                with pytest.raises(OperationError, match="does not answer") as refused:
                    await until(follow, lambda _: False)
                assert refused.value.code == "UNAVAILABLE"
                with pytest.raises(OperationError, match="does not answer"):
                    await client.call("runs.list", {})


async def test_a_follow_beside_a_log_gives_up_when_its_writer_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three looks after it was seen last; until then another process may take the log over."""
    monkeypatch.setattr("perdure.runtime.client.local.LOOK", 0.05)
    async with server_here(tmp_path):
        pass
    async with (
        open_beside(DataDir(tmp_path), FEATURES) as client,
        server_here(tmp_path) as here,
        client.follow("log") as follow,
    ):
        await Asked(client, here).ended("greet")
        await until(follow, lambda seen: bool(events_in(seen)))
        was_at_work = client.at_work
        here.server.stop()
        await here.ended.wait()
        assert (was_at_work, client.at_work) == (True, False)
        with pytest.raises(OperationError, match="no process is at work") as refused:
            await until(follow, lambda _: False)
        assert refused.value.code == "UNAVAILABLE"


async def test_a_server_that_is_not_there_is_told_at_once() -> None:
    """Nobody waits for an address at which nothing was ever found."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    with pytest.raises(OperationError, match="does not answer"):
        async with remote_at(f"http://127.0.0.1:{port}"):
            pass


async def test_an_address_where_no_perdure_is_says_so(tmp_path: Path) -> None:
    """Another path of a server, or another server: it is not tried again and again."""
    async with server_here(tmp_path) as here:
        with pytest.raises(OperationError) as refused:
            async with remote_at(f"{here.serving.url}/elsewhere"):
                pass
        assert refused.value.code == "NOT_FOUND"


async def test_a_server_that_goes_down_in_good_order_is_waited_for(tmp_path: Path) -> None:
    """A drain is no end of a follow: it goes on with the next server, at the next record."""
    data = tmp_path / "data"
    with server(data) as first:
        where = Announced(DataDir(data))
        async with (
            open_remote(RealEnv(), where, READING, patience=PATIENCE) as client,
            client.follow("runs") as follow,
        ):
            await until(follow, lambda seen: bool(seen) and seen[-1].live)
            first.signal(signal.SIGTERM)
            await trio.to_thread.run_sync(first.wait)
            with server(data) as second:
                run_id = await trio.to_thread.run_sync(lambda: second.start("count", to=1))
                seen = await until(follow, lambda seen: bool(events_in(seen)))
                assert events_in(seen)[0]["run_id"] == run_id
