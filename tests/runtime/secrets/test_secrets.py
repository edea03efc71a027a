"""Secret arguments: passed, sealed, resolved, forgotten."""

from __future__ import annotations

import re
from typing import Any
from unittest import mock

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.claim import CLAIM_EVENTS, KEYED_SCHEME, SCHEME, ClaimMade, claim_stream
from perdure.actors.errors import Fenced
from perdure.eventlog import MemoryStore
from perdure.eventlog.errors import Overloaded
from perdure.eventlog.store import Bounds
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.plugin import declared, entry, plugin
from perdure.runtime.plugins.run_context import RunContext
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import CancelRun, CreateRun, ListRuns, RetryRun
from perdure.runtime.secrets.references import SecretSource
from perdure.runtime.secrets.sealed_files import MemorySeals
from tests.runtime.secrets.guarded import (
    PLUGINS,
    REFERENCE,
    SEEN,
    SOURCE,
    VALUE,
    Login,
    created,
    held,
)
from tests.runtime.service import Service, refused, service

# Passing


async def test_the_entry_gets_the_value_and_the_log_does_not(autojump_clock: MockClock) -> None:
    """A value is sealed before the run exists, a reference stays one, None is nothing."""
    store, seals = MemoryStore(), MemorySeals()
    login = {"user": "me", "password": VALUE}
    SEEN.clear()
    async with service(store, PLUGINS, seals=seals, source=SOURCE) as s:
        args = {"token": VALUE, "second": REFERENCE, "url": "x", "login": login}
        run = await s.start("use", args=args)
        assert list(seals.sealed) == [run["run_id"]]
        await s.finished(run["run_id"])
        await s.finished(
            (await s.start("use", args={"token": REFERENCE, "second": None}))["run_id"]
        )
        assert seals.sealed == {}
    assert [(VALUE, VALUE, Login("me", VALUE)), (VALUE, None, None)] == SEEN
    first, second = created(store)
    sealed = {"sealed": True}
    assert first.args == {"token": sealed, "second": REFERENCE, "url": "x", "login": sealed}
    assert second.args == {"token": REFERENCE, "second": None}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"token": {"secret": "cow"}}, "token: there is no secret 'cow': set PERDURE_SECRET_COW"),
        ({"token": {"secret": "../x"}}, "token: '../x' is no name of a secret"),
        ({"token": {"sealed": True}}, "token is the mark of a sealed value"),
        ({"token": {"secret": 5}}, "args.token: expected str, got object"),
        ({"token": 5}, r"args.token: expected str, got int"),
        ({"token": "a\0bcdef"}, "NUL"),
        ({}, "args.token: expected a value, got nothing"),
        ({"token": VALUE, "url": f"https://{VALUE}@example.org"}, "argument 'url' has the value"),
        ({"token": REFERENCE, "url": VALUE}, "argument 'url' has the value"),
        ({"token": VALUE, VALUE: 1}, "argument '.redacted.' has the value"),
    ],
)
async def test_a_secret_that_makes_no_sense_makes_no_run(
    autojump_clock: MockClock, args: dict[str, Any], said: str
) -> None:
    """Neither is anything left in the vault, nor the value in the error."""
    seals = MemorySeals()
    async with service(None, PLUGINS, seals=seals, source=SOURCE) as s:
        error = await refused("VALIDATION_ERROR", lambda: s.start("use", args=args))
        assert re.search(said, error.message), error.message
        assert VALUE not in f"{error.message} {error.details}"
        assert error.details is not None
        assert all(each["path"].startswith("args") for each in error.details["errors"])
        assert (await s.list(LOCAL, ListRuns()))["runs"] == []
    assert seals.sealed == {}


@pytest.mark.parametrize("place", ["task_id", "trace_id", "idempotency_key"])
async def test_a_secret_has_no_place_in_the_names_of_a_run(
    autojump_clock: MockClock, place: str
) -> None:
    """They are logged as they are."""
    async with service(None, PLUGINS) as s:
        args = {"token": VALUE}
        error = await refused(
            "VALIDATION_ERROR", lambda: s.start("use", args=args, **{place: f"x-{VALUE}"})
        )
        assert place in error.message


async def test_what_a_reference_leads_to_is_checked_too(autojump_clock: MockClock) -> None:
    """Against the types of the entry."""
    short = SecretSource({"PERDURE_SECRET_HORSE": "short"})
    async with service(None, PLUGINS, source=short) as s:
        error = await refused(
            "VALIDATION_ERROR", lambda: s.start("choosy", args={"token": REFERENCE})
        )
        assert "length >= 10" in error.message


async def test_a_request_does_not_show_its_arguments() -> None:
    """Whoever logs one logs no secret."""
    request = CreateRun(plugin_id="test", entry_id="use", args={"token": VALUE})
    assert VALUE not in repr(request)
    assert VALUE not in repr(RetryRun(run_id="r", secrets={"token": VALUE}))


# Starting


async def start_without(s: Service, seals: MemorySeals, args: dict[str, Any]) -> Any:
    """Start a run whose secret goes away before its turn comes."""
    with held(s):
        run = await s.start("use", args=args)
    seals.sealed.clear()
    runs_of(s.node).executor._start_ready()
    return (await s.finished(run["run_id"]))["error"]


async def test_a_run_whose_secret_is_gone_fails_and_says_so(autojump_clock: MockClock) -> None:
    """With SECRET_REQUIRED and the name of the argument."""
    seals, variables = MemorySeals(), {"PERDURE_SECRET_HORSE": VALUE}
    async with service(None, PLUGINS, seals=seals, source=SecretSource(variables)) as s:
        error = await start_without(s, seals, {"token": VALUE})
        assert (error["code"], error["retriable"]) == ("SECRET_REQUIRED", False)
        assert "'token'" in error["message"]
        with held(s):
            run = await s.start("use", args={"token": REFERENCE})
        variables.clear()
        runs_of(s.node).executor._start_ready()
        error = (await s.finished(run["run_id"]))["error"]
        assert error is not None
        assert (error["code"], error["details"]) == (
            "SECRET_REQUIRED",
            {"argument": "token", "reference": "horse"},
        )


# Idempotency


def claim(store: MemoryStore, key: str) -> ClaimMade:
    """What a key stands for."""
    stream = claim_stream(LOCAL.tenant, LOCAL.user, "runs.create", key)
    claimed: ClaimMade = CLAIM_EVENTS.decode(store.read_stream(stream, 0, Bounds()).records[-1])
    return claimed


async def test_equal_requests_are_equal_and_others_are_not(autojump_clock: MockClock) -> None:
    """Also after a restart; the second seal is not kept."""
    store, seals = MemoryStore(), MemorySeals()
    args = {"token": VALUE, "url": "x"}
    async with service(store, PLUGINS, seals=seals) as s:
        first = await s.start("use", args=args, idempotency_key="k")
        again = await s.start("use", args=dict(reversed(args.items())), idempotency_key="k")
        assert list(seals.sealed) == [first["run_id"]] == [again["run_id"]]
    async with service(store, PLUGINS, seals=seals, source=SOURCE) as s:
        assert (await s.start("use", args=args, idempotency_key="k"))["run_id"] == first["run_id"]
        for other in ({"token": "another"}, {"token": REFERENCE}, {"token": VALUE, "url": "y"}):
            await refused(
                "IDEMPOTENCY_CONFLICT",
                lambda other=other: s.start("use", args=other, idempotency_key="k"),  # type: ignore[misc]
            )
        await s.finished(first["run_id"])
    assert seals.sealed == {}


async def test_a_hash_tells_nothing_without_the_key(autojump_clock: MockClock) -> None:
    """Two logs hash the same request differently; the claim names its scheme."""
    hashes = set()
    for key in (b"1", b"2"):
        store, seals = MemoryStore(), MemorySeals()
        seals.key(lambda count, key=key: key * count)  # type: ignore[misc]
        async with service(store, PLUGINS, seals=seals, source=SOURCE) as s:
            await s.start("use", args={"token": VALUE}, idempotency_key="k")
            await s.start("use", args={"token": REFERENCE}, idempotency_key="r")
        assert (claim(store, "k").scheme, claim(store, "r").scheme) == (KEYED_SCHEME, SCHEME)
        hashes.add(claim(store, "k").request_hash)
    assert len(hashes) == 2


async def test_an_old_claim_is_compared_by_its_own_scheme(autojump_clock: MockClock) -> None:
    """A key from before the argument was secret still stands for its run."""

    @plugin("test", version="1")
    class Before:
        @entry
        async def use(self, ctx: RunContext, token: str) -> None:
            """Use what is not known to be a secret."""

    store = MemoryStore()
    async with service(store, {"test": declared(Before)}) as s:
        first = await s.start("use", args={"token": VALUE}, idempotency_key="k")
        await s.finished(first["run_id"])
    async with service(store, PLUGINS) as s:
        again = await s.start("use", args={"token": VALUE}, idempotency_key="k")
        assert again["run_id"] == first["run_id"]
        error = await refused(
            "IDEMPOTENCY_CONFLICT",
            lambda: s.start("use", args={"token": "another"}, idempotency_key="k"),
        )
        assert error.details is not None
        assert error.details["expected"] == claim(store, "k").request_hash


# Forgetting


async def test_a_run_that_does_not_come_into_being_leaves_nothing(
    autojump_clock: MockClock,
) -> None:
    """Refused by the log, its seal is dropped."""
    seals = MemorySeals()
    async with service(None, PLUGINS, seals=seals) as s:
        overloaded = mock.patch.object(s.node.log, "append", side_effect=Overloaded(1))
        with overloaded:
            await refused("OVERLOADED", lambda: s.start("use", args={"token": VALUE}))
        assert seals.sealed == {}


async def test_a_full_disk_is_nobodys_fault(autojump_clock: MockClock) -> None:
    """What cannot be sealed is not started."""
    seals = MemorySeals()
    async with service(None, PLUGINS, seals=seals) as s:
        full = OSError(28, "No space left on device")
        with mock.patch.object(seals, "put", side_effect=full):
            error = await refused("UNAVAILABLE", lambda: s.start("use", args={"token": VALUE}))
        assert "No space left" in error.message
        assert (await s.list(LOCAL, ListRuns()))["runs"] == []


async def test_a_caller_who_gives_up_leaves_nothing(autojump_clock: MockClock) -> None:
    """Neither a run nor a seal, or both: whenever it is."""
    for wait in (0, 0.0005, 0.0015, 0.0025, 0.0035, 0.0045, 0.0055, 0.1):
        store, seals = MemoryStore(), MemorySeals()
        async with service(store, PLUGINS, seals=seals) as s:
            with held(s):
                with trio.move_on_after(wait):
                    await s.start("use", args={"token": VALUE}, idempotency_key="k")
                await trio.sleep(1)
                assert list(seals.sealed) == [run.run_id for run in created(store)]


async def test_what_cannot_be_removed_is_said_and_left_for_the_next_start(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The run has ended all the same, and its host goes on."""
    store, seals = MemoryStore(), MemorySeals()
    async with service(store, PLUGINS, seals=seals) as s:
        with mock.patch.object(seals, "drop", side_effect=PermissionError(13, "not yours")):
            run = await s.start("use", args={"token": VALUE})
            await s.finished(run["run_id"])
            await trio.sleep(1)
        (record,) = [r for r in caplog.records if r.name == "perdure.secrets"]
        assert vars(record)["run_id"] == run["run_id"]
        assert list(seals.sealed) == [run["run_id"]]
    async with service(store, PLUGINS, seals=seals):
        assert seals.sealed == {}


async def test_a_canceled_run_is_forgotten(autojump_clock: MockClock) -> None:
    """Before its turn came, too."""
    seals = MemorySeals()
    async with service(None, PLUGINS, seals=seals) as s:
        with held(s):
            run = await s.start("use", args={"token": VALUE})
        await s.cancel(LOCAL, CancelRun(run_id=run["run_id"]))
        await trio.sleep(1)
        assert seals.sealed == {}


async def test_start_up_forgets_what_nobody_needs(autojump_clock: MockClock) -> None:
    """Seals of runs that have ended, and of runs that never came into being; no others."""
    store, seals = MemoryStore(), MemorySeals()
    async with service(store, PLUGINS, seals=seals) as s:
        ended = await s.start("use", args={"token": VALUE})
        await s.finished(ended["run_id"])
        alive = await s.start("use", args={"token": VALUE})
    seals.put(ended["run_id"], b"old")
    seals.put("never-was", b"old")
    SEEN.clear()
    async with service(store, PLUGINS, seals=seals) as s:
        assert list(seals.sealed) == [alive["run_id"]]
        assert (await s.finished(alive["run_id"]))["status"] == "succeeded"
    assert SEEN == [(VALUE, None, None)]
    assert seals.sealed == {}


# Trying again


async def test_a_retry_needs_what_was_forgotten(autojump_clock: MockClock) -> None:
    """Which argument, it says; a value or a reference will do, and is used."""
    store, seals = MemoryStore(), MemorySeals()
    async with service(store, PLUGINS, seals=seals, source=SOURCE) as s:
        run = await s.start("use", args={"token": VALUE, "url": "x"})
        await s.finished(run["run_id"])
        ask = RetryRun(run_id=run["run_id"])
        error = await refused("SECRET_REQUIRED", lambda: s.retry(LOCAL, ask))
        assert error.details == {"arguments": ["token"]}
        assert "'token'" in error.message
        SEEN.clear()
        retried: list[str] = []
        for secret in ("another one", REFERENCE):
            again = RetryRun(run_id=run["run_id"], secrets={"token": secret})
            retried.append((await s.retry(LOCAL, again))["run"]["run_id"])
            assert (await s.finished(retried[-1]))["status"] == "succeeded"
        assert [token for token, *_ in SEEN] == ["another one", VALUE]
        by_reference = RetryRun(run_id=retried[-1])
        assert (await s.retry(LOCAL, by_reference))["run"]["attempt"] == 4
    assert [c.args["url"] for c in created(store)] == ["x"] * 4
    assert seals.sealed == {}


@pytest.mark.parametrize(
    ("secrets", "said"),
    [
        ({"token": "x", "url": "y"}, "'url' is no secret argument of test.use"),
        ({"token": 5}, "args.token: expected str"),
        ({"token": {"secret": "cow"}}, "no secret 'cow'"),
    ],
)
async def test_secrets_of_a_retry_are_checked(
    autojump_clock: MockClock, secrets: dict[str, Any], said: str
) -> None:
    """As those of a first run are."""
    async with service(None, PLUGINS) as s:
        run = await s.start("use", args={"token": VALUE})
        await s.finished(run["run_id"])
        ask = RetryRun(run_id=run["run_id"], secrets=secrets)
        error = await refused("VALIDATION_ERROR", lambda: s.retry(LOCAL, ask))
        assert said in error.message


# Children


async def test_a_child_with_a_reference_that_leads_nowhere_is_not_started(
    autojump_clock: MockClock,
) -> None:
    """The entry that starts it hears of it."""
    async with service(None, PLUGINS, source=SOURCE) as s:
        bad = await s.finished(
            (await s.start("parent", args={"token": {"secret": "cow"}}))["run_id"]
        )
        assert bad["error"] is not None
        assert bad["error"]["code"] == "VALIDATION_ERROR"
        good = await s.finished((await s.start("parent", args={"token": REFERENCE}))["run_id"])
        assert good["status"] == "succeeded"


async def test_a_child_that_is_not_started_leaves_nothing(autojump_clock: MockClock) -> None:
    """Its parent was taken over while it started it."""
    seals = MemorySeals()
    async with service(None, PLUGINS, seals=seals) as s:
        real = runs_of(s.node).executor.runs.ask

        async def fenced(stream: str, command: Any, **more: Any) -> Any:
            if more.get("also"):
                assert len(seals.sealed) == 1
                raise Fenced(1, 2)
            return await real(stream, command, **more)

        with mock.patch.object(runs_of(s.node).executor.runs, "ask", fenced):
            await s.start("parent", args={"token": VALUE})
            await trio.sleep(5)
        assert seals.sealed == {}
