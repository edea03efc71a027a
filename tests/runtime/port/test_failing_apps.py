"""Apps that fail, and whom it hurts."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

import pytest
import trio
import trio.testing

from tests.runtime.port.world import (
    Echo,
    answering,
    body,
    request,
    serving,
    start,
)


async def test_an_app_that_fails_early_is_a_500(caplog: pytest.LogCaptureFixture) -> None:
    """The client learns that it was not its fault and nothing else; the log has it once."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("a secret path /etc/thing")

    async with serving(app) as world:
        answer = await world.get("/broken")
    assert (answer.status, answer.code) == (500, "INTERNAL")
    assert b"secret" not in answer.body
    (record,) = caplog.records
    assert "/broken" in record.getMessage()
    assert world.port.counters.crashes == 1


@pytest.mark.parametrize("begin", [start(), start(content_length="100")])
async def test_an_app_that_fails_late_breaks_the_connection(
    begin: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Half a response is never taken for a whole one."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(begin)
        await send(body(b"half", more=True))
        raise ValueError("late")

    async with serving(app) as world:
        client = await world.connect()
        await client.send(request())
        with pytest.raises(trio.BrokenResourceError):
            await client.response()
    assert world.port.counters.crashes == len(caplog.records) == 1


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (start(),),
        (start(content_length="3"), body(b"much too long")),
        (start(content_length="30"), body(b"too short")),
        (start(bad="a\r\nb"), body()),
        (body(b"first"),),
        ({"type": "http.response.something"},),
    ],
)
async def test_an_app_that_breaks_the_protocol_is_a_500(messages: Any) -> None:
    """It has sent nothing yet, so the client can be told."""
    async with serving(answering(*messages)) as world:
        assert (await world.get()).code == "INTERNAL"


async def test_an_app_that_fails_after_its_response_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The response was complete; the connection goes on."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        await send(body(b"fine"))
        raise ValueError("in the background")

    async with serving(app) as world:
        client = await world.connect()
        assert [(await client.get()).body for _ in range(2)] == [b"fine", b"fine"]
    assert len(caplog.records) == 2


async def test_one_connection_that_fails_hurts_no_other() -> None:
    """Others that are in the middle of something do not notice."""
    go_on = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/slow":
            await go_on.wait()
        elif scope["path"] == "/group":
            raise ExceptionGroup("several", [ValueError(), RecursionError()])
        elif scope["path"] == "/broken":
            await send(start())
            await send(body(b"x", more=True))
            raise MemoryError
        await send(start())
        await send(body(b"fine"))

    async with serving(app) as world:
        slow = await world.connect()
        await slow.send(request("/slow"))
        for path in ("/group", "/broken") * 3:
            client = await world.connect()
            await client.send(request(path))
            with suppress(trio.BrokenResourceError):
                await client.rest()
        go_on.set()
        assert (await slow.response()).body == b"fine"
        assert (await slow.get()).body == b"fine"


async def test_requests_are_logged_for_those_who_want_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line a request at debug, without the query."""
    caplog.set_level(logging.DEBUG, "perdure.port.access")
    async with serving(Echo()) as world:
        await world.get("/a?token=1")
    (record,) = caplog.records
    assert "GET /a 200" in record.getMessage()
