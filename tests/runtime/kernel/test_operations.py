"""The table of operations itself: what it promises, and that it is kept."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
import trio
from trio.testing import MockClock

from perdure.actors.errors import (
    AnsweredOtherwise,
    Fenced,
    Invalid,
    NoSuchActor,
    NoSuchQuestion,
    NotNow,
    TooLarge,
)
from perdure.actors.run.status import Status
from perdure.eventlog import errors as log_errors
from perdure.runtime.features import FEATURES
from perdure.runtime.kernel.errors import ERRORS, OperationError, translated
from perdure.runtime.kernel.operations import (
    COMMON_ERRORS,
    Operations,
    operation,
    operations_of,
)
from perdure.runtime.kernel.principal import LOCAL, Permission, Principal
from perdure.runtime.kernel.socket_protocol import FOLLOW
from perdure.runtime.plugins.loading import Problem
from perdure.runtime.runs.answers import RunAnswer
from perdure.runtime.runs.operations import Runs
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import GetRun, RunStatus
from tests.features import TRIED
from tests.runtime.service import next_frame, refused, service


def test_the_table_has_every_operation() -> None:
    """By name, with request, response, permission and errors that exist."""
    assert list(FEATURES.operations) == [
        "blobs.collect",
        "blobs.create_upload",
        "blobs.read",
        "log.follow",
        "plugins.list",
        "plugins.trigger",
        "runs.answer",
        "runs.cancel",
        "runs.cancel_many",
        "runs.create",
        "runs.export",
        "runs.find",
        "runs.get",
        "runs.history",
        "runs.list",
        "runs.logs",
        "runs.questions",
        "runs.retry",
        "runs.retry_many",
        "runs.wait",
    ]
    for row in TRIED.operations.values():
        assert row.summary.endswith(".")
        assert set(row.errors) <= ERRORS.keys()
        assert set(map(row.dialect.code, COMMON_ERRORS)) <= set(row.errors)
        assert row.follows == (row.name == "log.follow")
    assert operations_of(Runs).keys() < TRIED.operations.keys()


def test_every_request_and_response_has_a_schema() -> None:
    """The reference and every surface's own description are made from these."""
    events = {name: channel.event for name, channel in TRIED.channels.items()}
    types = [part for row in TRIED.operations.values() for part in (row.request, row.response)]
    schemas, parts = msgspec.json.schema_components([*types, *events.values()])
    assert len(schemas) == 2 * len(TRIED.operations) + len(events)
    assert {"RunRecord", "RunDelta", "ExportItem"} <= parts.keys()
    follow = TRIED.operations[FOLLOW].request
    assert set(get_args(get_type_hints(follow)["channel"])) == events.keys()


def test_every_status_can_be_asked_for() -> None:
    """A type has to spell them out; they are the same and in the same order."""
    assert get_args(RunStatus) == tuple(Status)


@pytest.mark.parametrize("permission", Permission)
async def test_nobody_does_what_they_may_not(
    autojump_clock: MockClock, permission: Permission
) -> None:
    """Each operation is refused to whoever lacks its permission, before anything else is said."""
    nearly_all = Principal("local", "local", frozenset(Permission) - {permission})
    async with service() as s:
        for row in TRIED.operations.values():
            if row.permission is permission:
                error = await refused(
                    "PERMISSION_DENIED", partial(s.call, row.name, {}, nearly_all)
                )
                assert permission in error.message


async def test_the_raw_log_is_for_operators(autojump_clock: MockClock) -> None:
    """Who may only read sees their own runs, not the records of everybody."""
    reader = Principal("local", "local", frozenset({Permission.READ}))
    async with service() as s:
        await s.follow("runs", reader)
        await refused("PERMISSION_DENIED", lambda: s.follow("log", reader))


@pytest.mark.parametrize("name", ["runs.create", "runs.get", "runs.list", "log.follow"])
async def test_a_request_that_makes_no_sense_is_refused_at_the_door(
    autojump_clock: MockClock, name: str
) -> None:
    """The answer names the operation and the place (R58)."""
    async with service() as s:
        error = await refused("VALIDATION_ERROR", lambda: s.call(name, {"unknown": 1}))
        assert error.message.startswith(f"{name}: ")
        assert "unknown" in error.message or "missing" in error.message
        with pytest.raises(OperationError, match=r"there is no operation 'runs\.fly'"):
            await s.node.operations.call(LOCAL, "runs.fly", {})


async def test_a_moment_is_read_in_one_way(autojump_clock: MockClock) -> None:
    """A number is epoch seconds, a text ISO 8601, digits or a cursor; each names the same place."""
    async with service() as s:
        before = await s.cursor()
        created = (await s.start("greet"))["updated_at"]
        iso = datetime.fromtimestamp(created, UTC).isoformat()
        nanoseconds = round(created * 1e6) * 1000 + 999
        for at in (created, str(created), iso, nanoseconds, float(int(created) + 1)):
            assert len((await s.call("runs.list", {"at": at}))["runs"]) == 1, at
            before_it = await s.call("runs.list", {"created_until": at})
            assert len(before_it["runs"]) == 1, at
        for at in (before, created - 1, str(int(created) - 1), 0):
            assert (await s.call("runs.list", {"at": at}))["runs"] == [], at
        late = {"status": ["queued", "running"], "created_from": int(created) + 60}
        assert (await s.call("runs.cancel_many", late))["count"] == 0
        for wrong in (True, [1], {"a": 1}):
            await refused("VALIDATION_ERROR", partial(s.call, "runs.list", {"at": wrong}))
            await refused("VALIDATION_ERROR", partial(s.call, "runs.list", {"created_from": wrong}))
        await refused("INVALID_CURSOR", partial(s.call, "runs.list", {"at": "soon"}))
        await refused("VALIDATION_ERROR", partial(s.call, "runs.list", {"created_until": before}))


async def test_another_tenants_run_does_not_exist(autojump_clock: MockClock) -> None:
    """By no operation and on no channel."""
    stranger = Principal("elsewhere", "local")
    async with service() as s:
        run = await s.start("exports")
        await s.finished(run["run_id"])
        for name, more in {
            "runs.get": {},
            "runs.cancel": {},
            "runs.retry": {},
            "runs.export": {},
            "runs.answer": {"question_id": "q", "answer": 1},
        }.items():
            args: dict[str, Any] = {"run_id": run["run_id"], **more}
            await refused("RUN_NOT_FOUND", partial(s.call, name, args, stranger))
        for channel in ("runs", "export"):
            request = {"channel": channel, "run_id": run["run_id"]}
            await refused("RUN_NOT_FOUND", partial(s.call, "log.follow", request, stranger))
            following = await s.follow(channel, stranger)
            frame = await next_frame(following)
            assert frame["events"] == []
        assert (await s.call("runs.list", {}, stranger))["runs"] == []
        assert (await s.read(run["run_id"])) == await s.finished(run["run_id"])


async def test_plugins_are_listed_with_the_schemas_of_their_entries(
    autojump_clock: MockClock,
) -> None:
    """What a caller needs to know to create a run is there, as JSON Schema 2020-12."""
    async with service() as s:
        (shown,) = (await s.call("plugins.list", {}))["plugins"]
        assert (shown["plugin_id"], shown["version"], shown["limit"]) == ("test", "1", 3)
        assert shown["description"] == "Entries of every kind."
        nap = next(entry for entry in shown["entries"] if entry["entry_id"] == "nap")
        assert nap["args"]["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert nap["args"]["required"] == ["seconds"]
        assert (nap["timeout"], nap["resumes"]) == (100, True)
        assert nap["description"] == "Sleep, durably."


async def test_what_was_not_loaded_is_told_without_paths(autojump_clock: MockClock) -> None:
    """Callers may be anywhere: where things lie on this machine is not theirs to know."""
    async with service() as s:
        runs_of(s.node).executor.context.entries.problems = [
            Problem(
                source="folder /srv/my plugins/mail",
                message="FileNotFoundError: [Errno 2] No such file: '/etc/mail/key.pem' / x",
                remedy="Look at /var/log, at mail/readme or at https://example.org/a/b.",
                file="/srv/my plugins/mail/code.py",
                line=7,
            )
        ]
        assert (await s.call("plugins.list", {}))["problems"] == [
            {
                "source": "folder mail",
                "message": "FileNotFoundError: [Errno 2] No such file: 'key.pem' / x",
                "remedy": "Look at log, at mail/readme or at https://example.org/a/b.",
                "file": "code.py",
                "line": 7,
            }
        ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Invalid("x"), "VALIDATION_ERROR"),
        (TooLarge(2, 1), "PAYLOAD_TOO_LARGE"),
        (NotNow("answering", "queued"), "RUN_NOT_RUNNING"),
        (NoSuchQuestion("q"), "QUESTION_NOT_FOUND"),
        (AnsweredOtherwise("q"), "ALREADY_ANSWERED"),
        (NoSuchActor("run/1"), "RUN_NOT_FOUND"),
        (log_errors.RecordTooLarge("x", 2, 1), "PAYLOAD_TOO_LARGE"),
        (log_errors.InvalidCursor("x"), "INVALID_CURSOR"),
        (log_errors.CodecError("x"), "VALIDATION_ERROR"),
        (log_errors.UnknownEvent("x", 1), "LOG_UNSUPPORTED"),
        (log_errors.UnreadableRecord("x"), "LOG_DAMAGED"),
        (log_errors.Overloaded(7), "OVERLOADED"),
        (log_errors.DiskFull("x"), "OVERLOADED"),
        (log_errors.WrongExpectedVersion("s", 1, 2), "CONFLICT"),
        (log_errors.LogClosed("x"), "UNAVAILABLE"),
        (log_errors.OutcomeUnknown("x"), "UNAVAILABLE"),
        (Fenced(1, 2), "INTERNAL"),
        (ZeroDivisionError("a secret detail"), "INTERNAL"),
    ],
)
def test_every_error_from_below_has_its_row(error: Exception, code: str) -> None:
    """One table says what callers hear; what is our own fault tells nothing of the inside."""
    told = translated(error)
    assert told.code == code
    assert told.kind is ERRORS[code]
    assert code != "INTERNAL" or "secret" not in str(told)


async def test_what_is_our_fault_is_logged_and_hidden(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller hears that it was logged, and it was."""

    async def broken(*_: object) -> None:
        raise ZeroDivisionError("a secret detail")

    async with service() as s:
        monkeypatch.setattr(runs_of(s.node).runs._reader, "now", broken)
        error = await refused("INTERNAL", lambda: s.read("x"))
        assert "secret" not in str(error)
        assert "secret" in caplog.text


async def test_so_many_pages_are_made_at_a_time(autojump_clock: MockClock) -> None:
    """What each takes while it is made is not counted; others wait, and small answers do not."""
    making, most = 0, 0

    async def take_a_second() -> RunAnswer:
        nonlocal making, most
        making += 1
        most = max(most, making)
        await trio.sleep(1)
        making -= 1
        return {"run": None, "cursor": ""}  # type: ignore[typeddict-item]

    class Answers:
        """A service whose answers take their time."""

        @operation("things.page", Permission.READ, page="contents")
        async def page(self, principal: Principal, request: GetRun) -> RunAnswer:
            """Answer with much."""
            return await take_a_second()

        @operation("things.list", Permission.READ, page="list")
        async def list(self, principal: Principal, request: GetRun) -> RunAnswer:
            """Answer with many."""
            return await take_a_second()

        @operation("things.small", Permission.READ)
        async def small(self, principal: Principal, request: GetRun) -> RunAnswer:
            """Answer with little."""
            return await take_a_second()

    operations = Operations(
        operations_of(Answers),
        [Answers()],
        pages={"contents": trio.CapacityLimiter(3), "list": trio.CapacityLimiter(2)},
    )
    for name, at_once in (("things.page", 3), ("things.list", 2), ("things.small", 10)):
        most = 0
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(operations.call, LOCAL, name, {"run_id": "x"})
        assert most == at_once
