"""A log that a newer release has written to: not the client's fault."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.run.events import ExportAppended, RunCreated
from perdure.actors.run.stream import stream_of
from perdure.eventlog import (
    Append,
    EventLog,
    MemoryStore,
    Metadata,
    NewEvent,
    StreamWrite,
    cbor,
)
from perdure.runtime.http.app import create_app
from perdure.runtime.http.event_routes import event_routes
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.kernel.settings import Settings
from perdure.runtime.runs.part import RunsPart
from perdure.runtime.runs.requests import ListRuns
from tests.runtime.cli.terminal import Shell
from tests.runtime.http.client import Client, error_of
from tests.runtime.http.sse import following
from tests.runtime.kernel.test_log_reader import node
from tests.runtime.service import next_frame, refused, service
from tests.runtime.websocket.harness import serving

FUTURE = "run.levitated"
TOLD = "the log holds an event of a newer release of Perdure; upgrade this server"


async def write(log: EventLog, run_id: str, name: str = FUTURE, schema: int = 1) -> None:
    """Write to a run what a newer release would."""
    stream = stream_of(run_id)
    state = log.store.stream_state(stream)
    scope = state.scope or stream
    event = NewEvent(
        name=name,
        schema=schema,
        body=cbor.encode({"height": 3}),
        event_id=log.env.new_event_id(),
        event_time=log.env.now(),
        meta=Metadata(fields={"tenant": LOCAL.tenant}).encode(),
    )
    await log.append(Append([StreamWrite(stream, state.version, [event], scope)]))


async def left_behind(**event: Any) -> tuple[MemoryStore, str]:
    """Leave a log behind in which a newer release has written to a run."""
    store = MemoryStore()
    async with service(store) as s:
        run_id = (await s.start("nap", args={"seconds": 50}, idempotency_key="k"))["run_id"]
        await trio.sleep(1)
        await write(s.node.log, run_id, **event)
    return store, run_id


ASKED: dict[str, dict[str, Any]] = {
    "runs.get": {},
    "runs.cancel": {},
    "runs.export": {},
    "runs.history": {},
    "runs.logs": {},
    "runs.wait": {},
    "runs.questions": {},
    "runs.retry": {},
    "runs.answer": {"question_id": "q", "answer": 1},
    "blobs.create_upload": {},
    "log.follow": {"channel": "run"},
}


async def test_every_operation_says_that_the_server_is_too_old(autojump_clock: MockClock) -> None:
    """With one code, which event it is, and what to do; nobody is told to try again."""
    store, run_id = await left_behind()
    async with service(store) as s:
        for name, args in ASKED.items():
            call = partial(s.call, name, {"run_id": run_id, **args})
            error = await refused("LOG_UNSUPPORTED", call)
            assert error.view()["message"] == TOLD
            assert error.details == {"name": FUTURE, "schema": 1}
            assert not error.kind.retriable
        again = partial(s.start, "nap", args={"seconds": 50}, idempotency_key="k")
        await refused("LOG_UNSUPPORTED", again)


async def test_other_runs_go_on(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A run that cannot be read is not taken up; lists name it, and it is logged once (G6)."""
    store, run_id = await left_behind()
    left = store.stream_state(stream_of(run_id))
    async with service(store) as s:
        assert f"run {run_id} cannot be taken up" in caplog.text
        other = await s.finished((await s.start("greet"))["run_id"])
        for _ in range(2):
            page = await s.list(LOCAL, ListRuns())
            assert page["runs"] == [other]
            assert page["unreadable"] == [run_id]
        assert caplog.text.count("left out of lists") == 1
        assert store.stream_state(stream_of(run_id)) == left


async def test_an_actor_that_lives_says_the_same(autojump_clock: MockClock) -> None:
    """It finds the event when it writes, and folds anew."""
    async with service() as s:
        run_id = (await s.start("nap", args={"seconds": 50}))["run_id"]
        await trio.sleep(1)
        await write(s.node.log, run_id)
        error = await refused("LOG_UNSUPPORTED", lambda: s.call("runs.cancel", {"run_id": run_id}))
        assert error.view()["message"] == TOLD


async def test_a_newer_shape_of_a_known_event_is_told_to_followers(
    autojump_clock: MockClock,
) -> None:
    """A follower that would have to show it hears why it cannot go on."""
    store, _ = await left_behind(name=ExportAppended.event_name, schema=99)
    async with service(store) as s:
        follower = await s.follow("export")
        error = await refused("LOG_UNSUPPORTED", lambda: next_frame(follower))
        assert error.view()["message"] == TOLD
        assert error.details == {"name": ExportAppended.event_name, "schema": 99}
        operator = await s.follow("log")
        names = [record["name"] for record in (await next_frame(operator))["events"]]
        assert ExportAppended.event_name in names  # as it is stored


async def test_http_answers_500_and_the_stream_of_events_ends_with_the_error(
    autojump_clock: MockClock,
) -> None:
    """A request is refused with the code; a stream that has begun ends with it."""
    store, run_id = await left_behind(name=ExportAppended.event_name, schema=99)
    async with service(store) as s:
        http = Client(s, create_app(s.node, Settings(), event_routes(s.node.features)))
        for path in (f"/runs/{run_id}", f"/runs/{run_id}/events"):
            response = await http.get(path)
            told = error_of(response, 500)
            assert (told["code"], told["message"]) == ("LOG_UNSUPPORTED", TOLD)
            assert "retry-after" not in response.headers
        async with following(http.app, "/events/export") as stream:
            await stream.over.wait()
        assert stream.events[-1].data["code"] == "LOG_UNSUPPORTED"


async def test_a_websocket_answers_calls_and_follows_with_the_code(
    autojump_clock: MockClock,
) -> None:
    """In the one shape that errors have."""
    store, run_id = await left_behind(name=ExportAppended.event_name, schema=99)
    async with service(store) as s, serving(s) as server, server.connect() as peer:
        answer = await peer.call("runs.get", run_id=run_id)
        assert (answer["error"]["code"], answer["error"]["message"]) == ("LOG_UNSUPPORTED", TOLD)
        await peer.send({"id": 1, "follow": {"channel": "export"}})
        *_, last = await peer.until("error")
        assert last["error"]["code"] == "LOG_UNSUPPORTED"


@pytest.mark.parametrize("command", ["show", "logs", "export", "watch", "retry", "cancel"])
def test_a_command_fails_and_says_to_upgrade(shell: Shell, command: str) -> None:
    """With exit code 1: neither the command nor its arguments are wrong."""

    async def begin() -> str:
        async with node(shell.data) as opened:
            asked = {"plugin_id": "test", "entry_id": "nap", "args": {"seconds": 50}}
            run = (await opened.operations.call(LOCAL, "runs.create", asked))["run"]
            await opened.part(RunsPart).executor.at_rest(opened.env.now())
            await write(opened.part(RunsPart).executor.context.log, run["run_id"])
            return str(run["run_id"])

    run_id = trio.run(begin)
    told = shell.call(command, run_id, "--json")
    assert told.exit_code == 1, told.output
    assert json.loads(told.stderr.splitlines()[-1])["error"]["code"] == "LOG_UNSUPPORTED"
    text = shell.call(command, run_id).stderr
    assert "the log holds an event of a newer release of Perdure" in text
    assert "Upgrade Perdure" in text


def test_doctor_mentions_a_newer_release(shell: Shell) -> None:
    """It names events that cannot be read here, and says what to do."""

    async def begin() -> None:
        async with node(shell.data) as opened:
            asked = {"plugin_id": "test", "entry_id": "greet"}
            run = (await opened.operations.call(LOCAL, "runs.create", asked))["run"]
            await opened.part(RunsPart).executor.end_of(run["run_id"])
            await write(opened.log, "future")
            await write(opened.log, "future", RunCreated.event_name, 99)

    trio.run(begin)
    doctor = shell.call("doctor")
    assert doctor.exit_code == 1
    assert f"to this log: {RunCreated.event_name}, {FUTURE}" in " ".join(doctor.output.split())
    assert "events: Upgrade Perdure" in doctor.output


def test_verification_counts_records_of_a_newer_release(shell: Shell) -> None:
    """They are no problem of the log's, so it is sound; people are told to upgrade."""

    async def begin() -> None:
        async with node(shell.data) as opened:
            await write(opened.log, "future")

    trio.run(begin)
    told = shell.call("log", "verify")
    assert told.exit_code == 0, told.output
    assert f"1 record of a newer release ({FUTURE}): upgrade Perdure" in told.output
    assert shell.json("log", "verify")["unknown"] == 1


def test_verification_says_to_upgrade_too(shell: Shell) -> None:
    """It has to know whether a run that was created by a newer release needs its secret."""

    async def begin() -> None:
        async with node(shell.data) as opened:
            await write(
                opened.part(RunsPart).executor.context.log, "future", RunCreated.event_name, 99
            )

    trio.run(begin)
    told = shell.call("log", "verify", "--json")
    assert told.exit_code == 1, told.output
    assert json.loads(told.stderr)["error"]["code"] == "LOG_UNSUPPORTED"
