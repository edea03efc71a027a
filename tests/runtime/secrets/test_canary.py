"""A canary goes wherever an entry can send it, and must be found nowhere."""

from __future__ import annotations

import logging
import traceback
from base64 import b64encode
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import quote

import pytest
import trio
from trio.testing import MockClock

from perdure import PluginError, Retry, RunContext, StepError
from perdure.eventlog import MemoryStore, RealEnv, SqliteStore, open_log
from perdure.runtime.kernel.data_directory import DataDir
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.plugin import declared, entry, plugin
from perdure.runtime.runs.feature import open_run_node
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import AnswerRun, CancelRun, RetryRun
from perdure.runtime.secrets.redaction import REDACTED, Redactor
from perdure.runtime.secrets.references import SecretSource
from perdure.runtime.secrets.sealed_files import MemorySeals
from perdure.runtime.secrets.secret import Secret
from perdure.runtime.secrets.secrets import open_secrets
from tests.runtime.execution.test_current_run import items
from tests.runtime.secrets import canary
from tests.runtime.secrets.canary import CANARY
from tests.runtime.service import Service, next_frame, refused, service

Body = Callable[[RunContext, str], Awaitable[Any]]
SOURCE = SecretSource({"PERDURE_SECRET_BIRD": CANARY})
WAYS: list[Any] = [CANARY, {"secret": "bird"}]


@plugin("test", version="1")
class Caged:
    """Entries with secrets."""

    body: Body

    @entry
    async def go(self, ctx: RunContext, token: Secret, place: str = "") -> Any:
        """Do what the test says."""
        return await type(self).body(ctx, token)

    @entry
    async def child(self, ctx: RunContext, token: Secret) -> str:
        """Say that the secret came."""
        ctx.run.log(f"got {token}")
        return "the same" if token == CANARY else "another"

    @entry
    async def plain(self, ctx: RunContext, text: str = "") -> str:
        """Take nothing that is secret."""
        return text


PLUGINS = {"test": declared(Caged)}


async def say_everywhere(ctx: RunContext, token: str) -> dict[str, Any]:
    """Put a secret wherever people can read it."""
    log = logging.getLogger("somebody.elses")
    encoded = b64encode(f"user:{token}".encode()).decode()
    ctx.run.log(f"logged {token} {encoded} " + "x" * 2000)
    ctx.run.log("x" * 1995 + token)
    ctx.run.status("stage", f"stage {token}")
    await trio.sleep(1)
    ctx.run.progress(0.5, f"progress {token}")
    log.warning("logging %s %r", token, {"token": token}, extra={"custom": [token]})
    try:
        int(token)
    except ValueError:
        ctx.run.log(traceback.format_exc())
        log.exception("caught", stack_info=True)
    await trio.to_thread.run_sync(lambda: log.error("from a thread: %s", token))
    await trio.sleep(1)
    more: dict[str, Any] = {
        "description": f"of {token}",
        "metadata": {token: token, "password": "hunter2"},
    }
    await ctx.run.export_text(f"text {token}", **more)
    await ctx.run.export_url(f"https://example.org/?t={quote(token, safe='')}", **more)
    await ctx.run.export_binary_url(f"blob:{encoded}", **more)
    await ctx.run.export_json({"deep": [{"a": token}], token: 1, "max_tokens": 5}, **more)
    return {"returned": token}


async def everything(s: Service, run_id: str) -> list[Any]:
    """All that operations say of a run, and of the log."""
    following = await s.follow("log")
    frames = [await next_frame(following)]
    return [await s.read(run_id), await items(s, run_id), frames]


@pytest.mark.parametrize("way", WAYS)
async def test_nothing_that_people_read_has_a_secret_in_it(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, way: Any
) -> None:
    """Lines, messages, tracebacks, exports of each type, results: all are there, redacted."""
    store, seals = MemoryStore(), MemorySeals()
    Caged.body = staticmethod(say_everywhere)
    async with service(store, PLUGINS, seals=seals, source=SOURCE, progress_items=True) as s:
        run = await s.start("go", args={"token": way}, trace_id="tr1")
        end = await s.finished(run["run_id"])
        assert end["status"] == "succeeded", end
        put_out = await items(s, run["run_id"])
        assert sum(REDACTED in repr(item) for item in put_out) == len(put_out)
        assert [item["json"]["max_tokens"] for item in put_out if "deep" in repr(item)] == [5]
        assert canary.in_answers(*await everything(s, run["run_id"])) == []
        assert canary.in_listing(s.node.listings["runs"].tables) == []
    assert canary.in_log(store) == []
    assert canary.in_logging(caplog.records, caplog.text) == []
    assert "logging [redacted]" in caplog.text
    assert seals.sealed == {}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", ["raise", "plugin error", "envelope", "step", "group"])
async def test_no_error_tells_a_secret(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, way: Any, how: str
) -> None:
    """Neither its message nor its details, however an entry fails; also cut off in the middle."""

    async def body(ctx: RunContext, token: str) -> Any:
        if how == "plugin error":
            raise PluginError("MINE", f"with {token}", details={"t": [token], "token": "x"})
        if how == "envelope":
            return {"ok": False, "error": {"code": "C", "message": token, "details": {"t": token}}}
        if how == "group":
            raise ExceptionGroup(token, [ValueError(token), KeyError(token)])

        async def fails() -> None:
            raise ValueError("x" * 1970 + token)

        if how == "step":
            return await ctx.run.step("s", fails, retry=Retry(tries=2, delay=1))
        return await fails()

    store = MemoryStore()
    Caged.body = staticmethod(body)
    async with service(store, PLUGINS, source=SOURCE) as s:
        run = await s.start("go", args={"token": way})
        end = await s.finished(run["run_id"])
        assert end["status"] == "failed"
        assert REDACTED[:5] in repr(end["error"])
        assert canary.in_answers(*await everything(s, run["run_id"])) == []
    assert CANARY[:8] not in repr([tuple(record) for record in store._records])
    assert canary.in_log(store) == []
    assert canary.in_logging(caplog.records, caplog.text) == []


REFUSED: dict[str, Callable[[RunContext, str], Awaitable[Any]]] = {}


def is_refused(fn: Callable[[RunContext, str], Awaitable[Any]]) -> Any:
    """Add something that an entry may not do with a secret."""
    REFUSED[fn.__name__] = fn
    return fn


@is_refused
async def step_result(ctx: RunContext, token: str) -> None:
    """Return it from a step."""

    async def body() -> dict[str, Any]:
        return {"a": ["b", token]}

    await ctx.run.step("s", body)


@is_refused
async def step_name(ctx: RunContext, token: str) -> None:
    """Name a step after it."""
    await ctx.run.sleep(1, f"s-{token}")


@is_refused
async def question(ctx: RunContext, token: str) -> None:
    """Ask about it."""
    await ctx.run.ask({"text": f"is {token} right?"})


@is_refused
async def child_args(ctx: RunContext, token: str) -> None:
    """Pass it on where it is no secret."""
    await ctx.run.start("test", "plain", {"text": token})


@is_refused
async def unknown_child(ctx: RunContext, token: str) -> None:
    """Pass it on to nobody knows whom."""
    await ctx.run.start("nobody", "knows", {"token": token})


@is_refused
async def export_key(ctx: RunContext, token: str) -> None:
    """Use it as a key."""
    await ctx.run.export_text("text", key=token)


@is_refused
async def export_binary(ctx: RunContext, token: str) -> None:
    """Hide it among bytes, which are never altered."""
    await ctx.run.export_binary(b"\xff" + token.encode())


@is_refused
async def export_bytes(ctx: RunContext, token: str) -> None:
    """Hide it in a blob, between two pieces."""
    data, cut = b"\xff" * 100_000 + token.encode(), 100_005
    await ctx.run.export_bytes(iter([data[:cut], data[cut:], b"\xff" * 100_000]))


@pytest.mark.parametrize("what", sorted(REFUSED))
async def test_what_is_fed_back_to_code_is_refused_and_not_altered(
    autojump_clock: MockClock, what: str
) -> None:
    """At the call, with an error that says what to do."""
    seen: list[Exception] = []

    async def body(ctx: RunContext, token: str) -> None:
        try:
            await REFUSED[what](ctx, token)
        except (PluginError, StepError) as error:
            seen.append(error)
            raise

    store = MemoryStore()
    Caged.body = staticmethod(body)
    async with service(store, PLUGINS) as s:
        run = await s.start("go", args={"token": CANARY})
        end = await s.finished(run["run_id"])
        assert end["status"] == "failed"
    assert "reference" in str(seen[0])
    assert canary.leaks(str(seen[0])) == []
    assert canary.in_log(store) == []


async def test_answers_and_reasons_from_outside_are_looked_at(autojump_clock: MockClock) -> None:
    """An answer is refused, a reason redacted; also by a host that has just started again."""

    async def body(ctx: RunContext, token: str) -> Any:
        return await ctx.run.ask("which?")

    store, seals = MemoryStore(), MemorySeals()
    Caged.body = staticmethod(body)
    for way in WAYS:
        async with service(store, PLUGINS, seals=seals, source=SOURCE) as s:
            run_id = (await s.start("go", args={"token": way}))["run_id"]
            await trio.sleep(1)
        async with service(store, PLUGINS, seals=seals, source=SOURCE) as s:
            (asked,) = (await s.read(run_id))["questions"]
            answer = AnswerRun(run_id=run_id, question_id=asked, answer={"it is": CANARY})
            error = await refused("VALIDATION_ERROR", partial(s.answer, LOCAL, answer))
            assert canary.leaks(str(error), repr(error.details), repr(answer)) == []
            cancel = CancelRun(run_id=run_id, reason=f"{CANARY} is known")
            answered = await s.cancel(LOCAL, cancel)
            assert answered["run"]["cancel_reason"] == f"{REDACTED} is known"
            await s.finished(run_id)
    assert canary.in_log(store) == []
    assert seals.sealed == {}


async def test_a_secret_is_passed_on_to_a_secret_argument_of_a_child(
    autojump_clock: MockClock,
) -> None:
    """It is sealed for the child, and forgotten with it."""

    async def body(ctx: RunContext, token: str) -> str:
        child = await ctx.run.start("test", "child", {"token": token})
        await ctx.run.sleep(5)
        return child

    store, seals = MemoryStore(), MemorySeals()
    Caged.body = staticmethod(body)
    async with service(store, PLUGINS, seals=seals) as s:
        run = await s.start("go", args={"token": CANARY})
        await trio.sleep(1)
        assert list(seals.sealed) == [run["run_id"]]  # the child has ended already
        await s.finished(run["run_id"])
        (item,) = await items(s, run["run_id"])
        (said,) = await items(s, item["json"])
        assert said["json"] == "the same"
    assert canary.in_log(store) == []
    assert seals.sealed == {}


@pytest.mark.parametrize("way", WAYS)
async def test_a_crash_lets_nothing_out(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, way: Any
) -> None:
    """The secret comes back to the entry that is called again, and goes nowhere else."""

    async def body(ctx: RunContext, token: str) -> str:
        ctx.run.log(f"with {token}")
        await ctx.run.export_text(f"text {token}")
        await ctx.run.sleep(10)
        await ctx.run.export_text(f"text {token}")
        return token

    store, seals = MemoryStore(), MemorySeals()
    Caged.body = staticmethod(body)
    async with service(store, PLUGINS, seals=seals, source=SOURCE) as s:
        run_id = (await s.start("go", args={"token": way}))["run_id"]
        await trio.sleep(5)
    assert (run_id in seals.sealed) == (way == CANARY)
    async with service(store, PLUGINS, seals=seals, source=SOURCE) as s:
        end = await s.finished(run_id)
        assert end["status"] == "succeeded"
        assert len(await items(s, run_id)) == 3  # what was recorded is recognised
        assert canary.in_answers(*await everything(s, run_id)) == []
    assert canary.in_log(store) == []
    assert canary.in_logging(caplog.records, caplog.text) == []
    assert seals.sealed == {}


async def test_no_file_has_a_secret_in_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In the real world: while the run runs, and after it, and after a retry."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "bird").write_text(CANARY, "utf-8")
    (tmp_path / "secrets" / "bird").chmod(0o600)
    go_on = trio.Event()

    async def body(ctx: RunContext, token: str) -> dict[str, Any]:
        await ctx.run.export_text(f"text {token}")
        ctx.run.log(f"line {token}")
        await go_on.wait()
        return {"right": token == CANARY, "token": token}

    Caged.body = staticmethod(body)
    env = RealEnv()
    with closing(SqliteStore.open(tmp_path / "log.db", env=env)) as store:
        async with (
            open_log(env, store) as log,
            open_run_node(
                log,
                PLUGINS,
                data=DataDir(tmp_path),
                secrets=open_secrets(env, tmp_path, {}),
            ) as node,
        ):
            told: list[Any] = []
            for way in WAYS:
                request = {"plugin_id": "test", "entry_id": "go", "args": {"token": way}}
                told.append(await node.operations.call(LOCAL, "runs.create", request))
            first, _ = [answer["run"]["run_id"] for answer in told]
            await trio.sleep(0.2)
            assert len(list((tmp_path / "sealed").iterdir())) == 1
            assert canary.in_files(tmp_path, "bird") == []
            go_on.set()
            for answer in told:
                ended = await runs_of(node).executor.end_of(answer["run"]["run_id"])
                assert ended.state.status == "succeeded"
            again = RetryRun(run_id=first, secrets={"token": CANARY})
            told.append(await runs_of(node).runs.retry(LOCAL, again))
            await runs_of(node).executor.end_of(told[-1]["run"]["run_id"])
            await trio.sleep(0.1)
    assert list((tmp_path / "sealed").iterdir()) == []
    assert canary.in_files(tmp_path, "bird") == []
    assert canary.in_answers(*told) == []
    assert canary.in_logging(caplog.records, caplog.text) == []


# The search itself


async def test_the_search_finds_a_planted_leak(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Without redaction the same entry leaks into the log, the answers and logging."""
    store = MemoryStore()
    Caged.body = staticmethod(say_everywhere)
    with mock.patch.object(Redactor, "register"):
        async with service(store, PLUGINS) as s:
            run_id = (await s.start("go", args={"token": CANARY}))["run_id"]
            await s.finished(run_id)
            record, put_out, frames = await everything(s, run_id)
            assert all(canary.in_answers(place) for place in (record, put_out, frames))
    assert canary.in_log(store)
    assert canary.in_logging(caplog.records, "")
    assert canary.in_logging([], caplog.text)
