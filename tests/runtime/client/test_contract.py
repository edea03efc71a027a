"""What every side of the port promises: the same answers, events and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from perdure.runtime.features import FEATURES
from perdure.runtime.kernel.errors import OperationError
from tests.runtime.client.sides import SIDES, Asked, asked_through, events_in, until

EACH = pytest.mark.parametrize("side", SIDES)


async def refusal(asked: Asked, operation: str, args: dict[str, Any]) -> tuple[Any, ...]:
    """What a call is refused with on a side; the node itself says the same."""
    told = []
    for call in (asked.client.call, asked.direct):
        with pytest.raises(OperationError) as refused:
            await call(operation, args)
        told.append((refused.value.code, refused.value.message, refused.value.details))
    assert told[0] == told[1]
    return told[0]


@EACH
async def test_calls_that_read_are_answered_alike_now_and_as_it_was(
    tmp_path: Path, side: str
) -> None:
    """Every answer is that of the node, down to its cursor; ``at`` leads back to it."""
    async with asked_through(side, tmp_path) as asked:
        run_id = await asked.ended("exports", final=True)
        for operation, args in (
            ("runs.get", {"run_id": run_id}),
            ("runs.list", {"limit": 5, "status": ["succeeded"]}),
            ("runs.find", {"beginning": run_id[:8]}),
            ("runs.export", {"run_id": run_id}),
            ("runs.logs", {"run_id": run_id}),
            ("runs.questions", {"run_id": run_id}),
            ("runs.history", {"run_id": run_id}),
            ("plugins.list", {}),
        ):
            answer = await asked.client.call(operation, args)
            if (side, operation) != ("beside", "plugins.list"):  # it lists what this process has
                assert answer == await asked.direct(operation, args)
        before = await asked.client.call("runs.list", {})
        await asked.ended("greet")
        assert len((await asked.client.call("runs.list", {}))["runs"]) == 2
        assert await asked.client.call("runs.list", {"at": before["cursor"]}) == before
        assert asked.client.at_work


@pytest.mark.parametrize("side", ["embedded", "remote"])
async def test_calls_that_write_are_done_once_and_answered_alike(tmp_path: Path, side: str) -> None:
    """Begin, ask to end, wait, run again: each answer is what the node has from then on."""
    async with asked_through(side, tmp_path) as asked:
        call = asked.client.call
        new = {"plugin_id": "test", "entry_id": "nap", "args": {"seconds": 600}}
        created = await call("runs.create", {**new, "idempotency_key": "k"})
        run_id = created["run"]["run_id"]
        again = await call("runs.create", {**new, "idempotency_key": "k"})
        assert again["run"]["run_id"] == run_id
        with pytest.raises(OperationError) as refused:
            await call("runs.retry", {"run_id": run_id})
        assert refused.value.code == "RUN_NOT_TERMINAL"
        short = await call("runs.wait", {"run_id": run_id, "timeout": 0.01})
        assert short["run"]["finished_at"] is None
        await call("runs.cancel", {"run_id": run_id, "reason": "enough"})
        ended = await call("runs.wait", {"run_id": run_id, "timeout": 20})
        assert ended["run"]["status"] == "canceled"
        assert ended == await asked.direct("runs.get", {"run_id": run_id})
        retried = await call("runs.retry", {"run_id": run_id})
        assert (retried["run"]["attempt"], retried["run"]["parent_run_id"]) == (2, run_id)
        runs = (await asked.direct("runs.list", {}))["runs"]
        assert {run["run_id"] for run in runs} == {run_id, retried["run"]["run_id"]}


async def test_beside_a_log_a_call_that_writes_says_what_is_missing(tmp_path: Path) -> None:
    """Every operation of the table that it cannot do, none of which it has done."""
    async with asked_through("beside", tmp_path) as asked:
        missing = set()
        for name in FEATURES.operations.keys() - {"log.follow"}:
            with pytest.raises(OperationError) as refused:
                await asked.client.call(name, {"no": "such argument"})
            if refused.value.code == "UNAVAILABLE":
                missing.add(name)
                assert refused.value.message == (
                    f"{name} needs a server, and this process only reads the log;"
                    " start one: perdure serve"
                )
        assert missing >= {"runs.create", "runs.cancel", "runs.retry", "runs.wait", "runs.answer"}
        assert not missing & {"runs.get", "runs.list", "runs.export", "runs.logs", "runs.history"}
        assert (await asked.direct("runs.list", {}))["runs"] == []


@EACH
async def test_refusals_have_code_message_and_details(tmp_path: Path, side: str) -> None:
    """A caller cannot tell by an error which side it has."""
    async with asked_through(side, tmp_path) as asked:
        run_id = await asked.ended("greet")
        code, _, _ = await refusal(asked, "runs.get", {"run_id": "none"})
        assert code == "RUN_NOT_FOUND"
        foreign = {"run_id": run_id, "at": "A" * 28}
        code, _, details = await refusal(asked, "runs.get", foreign)
        assert (code, bool(details)) == ("INVALID_CURSOR", True)
        code, _, _ = await refusal(asked, "runs.list", {"limit": 0})
        assert code == "VALIDATION_ERROR"
        code, _, _ = await refusal(asked, "runs.nothing", {})
        assert code == "VALIDATION_ERROR"
        with pytest.raises(OperationError, match="no call"):
            await asked.client.call("log.follow", {"channel": "runs"})


@EACH
async def test_the_log_is_followed_from_its_beginning_and_on(tmp_path: Path, side: str) -> None:
    """Catching up and live: each record once, in order; any cursor leads on from its place."""
    async with asked_through(side, tmp_path) as asked:
        await asked.ended("exports")
        async with asked.client.follow("log") as follow:
            seen = await until(follow, lambda seen: bool(seen) and seen[-1].live)
            caught_up = seen[-1].cursor
            await asked.ended("greet")
            head = (await asked.node.log.head()).position
            seen += await until(
                follow,
                lambda more: bool(events_in(more)) and events_in(more)[-1]["position"] == head,
            )
        assert [event["position"] for event in events_in(seen)] == list(range(1, head + 1))
        async with asked.client.follow("log", after=caught_up, limit=1) as follow:
            again = await until(
                follow,
                lambda more: bool(events_in(more)) and events_in(more)[-1]["position"] == head,
            )
        assert all(len(delivery.events) <= 1 for delivery in again)
        assert events_in(again) == events_in(seen)[-len(events_in(again)) :]


@EACH
async def test_a_listing_comes_first_and_then_the_changes(tmp_path: Path, side: str) -> None:
    """``runs`` begins with what has not ended; the listing's cursor comes when it is whole."""
    async with asked_through(side, tmp_path) as asked:
        await asked.ended("greet")
        open_runs = [await asked.begun("nap", seconds=60) for _ in range(3)]
        async with asked.client.follow("runs", limit=2) as follow:
            seen = await until(follow, lambda seen: len(events_in(seen)) >= 3)
            assert sorted(event["run_id"] for event in events_in(seen)) == sorted(open_runs)
            assert seen[0].cursor is None
            assert seen[-1].cursor is not None
            assert not any(delivery.restarted for delivery in seen)
            await asked.direct("runs.cancel", {"run_id": open_runs[0]})
            changes = await until(
                follow, lambda more: any(event["status"] == "canceled" for event in events_in(more))
            )
        assert {event["run_id"] for event in events_in(changes)} <= set(open_runs)


@EACH
async def test_a_follow_of_one_run_ends_with_it(tmp_path: Path, side: str) -> None:
    """Whether it ends meanwhile or had ended before; then there is nothing more to iterate."""
    async with asked_through(side, tmp_path) as asked:
        run_id = await asked.begun("slow_exports", n=5)
        for _ in range(2):
            with trio.fail_after(30):
                async with asked.client.follow("run", run_id=run_id) as follow:
                    seen = [delivery async for delivery in follow]
            assert seen[-1].end
            assert sum("export" in event for event in events_in(seen)) == 5
            assert events_in(seen)[-1]["run"]["status"] == "succeeded"


@EACH
async def test_a_follow_that_is_left_leaves_the_port_as_it_was(tmp_path: Path, side: str) -> None:
    """Cancelled in the middle of a wait; calls and other follows go on."""
    async with asked_through(side, tmp_path) as asked:
        await asked.ended("greet")
        async with asked.client.follow("log") as other:
            await until(other, lambda seen: bool(seen) and seen[-1].live)
            with trio.move_on_after(0.2) as waited:
                async with asked.client.follow("log") as follow:
                    async for _ in follow:
                        pass
            assert waited.cancelled_caught
            await asked.ended("greet")
            await until(other, lambda seen: bool(events_in(seen)))
        page = await asked.client.call("runs.list", {})
        assert len(page["runs"]) == 2


@EACH
@pytest.mark.parametrize(
    ("channel", "asking", "code"),
    [
        ("log", {"after": "nowhere"}, "INVALID_CURSOR"),
        ("log", {"after": "A" * 28}, "INVALID_CURSOR"),
        ("nothing", {}, "VALIDATION_ERROR"),
        ("run", {}, "VALIDATION_ERROR"),
        ("run", {"run_id": "none"}, "RUN_NOT_FOUND"),
        ("log", {"colour": "red"}, "VALIDATION_ERROR"),
        ("log", {"limit": 0}, "VALIDATION_ERROR"),
        ("log", {"limit": -1}, "VALIDATION_ERROR"),
        ("log", {"limit": 501}, "VALIDATION_ERROR"),
    ],
)
async def test_a_follow_that_makes_no_sense_is_refused_when_it_begins(
    tmp_path: Path, side: str, channel: str, asking: dict[str, Any], code: str
) -> None:
    """Before anything is delivered, and with the error that the node has."""
    async with asked_through(side, tmp_path) as asked:
        await asked.ended("greet")
        with pytest.raises(OperationError) as refused:
            async with asked.client.follow(channel, **asking):
                pass
        assert refused.value.code == code
        with pytest.raises(OperationError) as direct:
            await asked.direct("log.follow", {"channel": channel, **asking})
        assert refused.value.message == direct.value.message
