"""What every request passes: errors in one shape, methods, pages of other origins."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from starlette.requests import Request
from starlette.types import ASGIApp
from trio.testing import MockClock

from perdure.eventlog.errors import DiskFull, LogClosed, OutcomeUnknown, Overloaded
from perdure.runtime.http.app import create_app
from perdure.runtime.kernel.errors import ERRORS, OperationError
from perdure.runtime.kernel.routes.route import Route, Surface
from perdure.runtime.kernel.settings import Settings
from tests.features import TRIED
from tests.runtime.http.client import JSON, Client, client, error_of
from tests.runtime.settings import settings_with

PAGE = "https://console.example"
PATH = re.compile(r"(?<![\w.<:])/(?!runs|docs|openapi|plugin|capab)\w+/|Traceback|\.py\b")


async def test_an_unknown_address_is_an_error_like_any_other(autojump_clock: MockClock) -> None:
    """404 NOT_FOUND, in the shape of errors; a slash more is another address."""
    async with client() as asking:
        for path in ("/nothing", "/runs/", "/runs/a/b", "/uploads", "/runs/%2F/export"):
            assert error_of(await asking.get(path), 404)["code"] == "NOT_FOUND"


async def test_people_who_only_know_the_port_are_shown_the_way(autojump_clock: MockClock) -> None:
    """To the page that describes everything."""
    async with client() as asking:
        front = await asking.get("/")
        assert (front.status_code, front.headers["location"]) == (303, "/docs")
        assert (await asking.get("/docs")).status_code == 200


async def test_the_address_of_websockets_says_so(autojump_clock: MockClock) -> None:
    """426, and not that there was nothing."""
    async with client() as asking:
        for method in ("GET", "POST"):
            response = await asking.http.request(method, "/ws")
            assert error_of(response, 426)["code"] == "UPGRADE_REQUIRED"
            assert response.headers["upgrade"] == "websocket"
            assert response.headers["sec-websocket-version"] == "13"


async def test_a_method_that_an_address_does_not_take(autojump_clock: MockClock) -> None:
    """405 with Allow, which names all that it takes."""
    async with client() as asking:
        for method, path, allowed in [
            ("DELETE", "/runs", "GET, HEAD, OPTIONS, POST"),
            ("POST", "/version", "GET, HEAD, OPTIONS"),
            ("GET", "/plugin/trigger", "OPTIONS, POST"),
            ("HEAD", "/plugin/trigger", "OPTIONS, POST"),
            ("POST", "/uploads/x", "OPTIONS, PUT"),
        ]:
            response = await asking.http.request(method, path)
            assert response.status_code == 405
            assert response.headers["allow"] == allowed
            if method != "HEAD":
                error = error_of(response, 405)
                assert error["code"] == "METHOD_NOT_ALLOWED"
                assert error["details"] == {"allow": allowed.split(", ")}
            options = await asking.http.options(path)
            assert (options.status_code, options.headers["allow"]) == (204, allowed)


async def test_head_is_get_without_a_body(autojump_clock: MockClock) -> None:
    """Same status, same headers, nothing else; also of an error."""
    async with client() as asking:
        for path in ("/version", "/runs", "/docs", "/nothing", "/runs/none"):
            get, head = await asking.get(path), await asking.http.head(path)
            assert (head.status_code, head.headers) == (get.status_code, get.headers)
            assert head.content == b""


@pytest.mark.parametrize(
    "kind",
    [
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/cbor",
        "application/json; charset=latin-1",
        "",
    ],
)
async def test_a_body_of_another_type_is_refused(
    kind: str | None, autojump_clock: MockClock
) -> None:
    """415 says which type is wanted; nothing was read."""
    async with client() as asking:
        headers = {} if kind is None else {"content-type": kind}
        response = await asking.http.post("/runs", content=b"{}", headers=headers)
        error = error_of(response, 415)
        assert (error["code"], error["details"]) == (
            "UNSUPPORTED_MEDIA_TYPE",
            {"wanted": "application/json"},
        )


@pytest.mark.parametrize("kind", ["Application/JSON", 'application/json; charset="UTF-8"'])
async def test_a_type_can_be_written_in_several_ways(kind: str, autojump_clock: MockClock) -> None:
    """As HTTP allows."""
    async with client() as asking:
        body = b'{"plugin_id": "test", "entry_id": "greet", "args": {}}'
        response = await asking.http.post("/runs", content=body, headers={"content-type": kind})
        assert response.status_code == 202


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b'{"plugin_id": NaN}',
        b'{"args": {"a": 1e999}}',
        b'{"args": {}, "args": {}}',
        b'{"args": {"a": {"b": 1, "\\u0062": 2}}}',
        b'{"args": {"a": "\\u0000"}}',
        b'{"args": {"a": "\\ud800"}}',
        b'{"args": {"a": "\xff"}}',
        b'{"args": {"a": 9223372036854775808}}',
        b'{"args": ' + b"[" * 40 + b"]" * 40 + b"}",
        b"[" * 500_000,
        b'{"a":' * 200_000,
        b"\xef\xbb\xbf{}",
        b"{} {}",
    ],
    ids=range(16),
)
async def test_json_that_is_not_strict_is_refused(body: bytes, autojump_clock: MockClock) -> None:
    """422, whatever is wrong with it."""
    async with client() as asking:
        error = error_of(await asking.post("/runs", content=body, headers=JSON), 422)
        assert error["code"] == "VALIDATION_ERROR"


async def test_a_body_is_so_large_at_most(autojump_clock: MockClock) -> None:
    """413 before it is read, if its length is stated, and else as soon as it is too large."""
    async with client(settings_with(body_limit=2000)) as asking:
        error = error_of(await asking.post("/runs", {"args": {"a": "x" * 3000}}), 413)
        assert (error["code"], error["details"]) == ("PAYLOAD_TOO_LARGE", {"limit": 2000})
        read = 0

        async def pieces() -> Any:
            nonlocal read
            while True:
                read += 1
                yield b" " * 900

        endless = await asking.http.post("/runs", content=pieces(), headers=JSON)
        assert error_of(endless, 413)["code"] == "PAYLOAD_TOO_LARGE"
        assert read == 3


@pytest.mark.parametrize(
    "query",
    [
        "x=1",
        "limit=1&limit=2",
        "%ff=1",
        "task_id=%00",
        "task_id=%ED%A0%80",
        "&".join(["a=1"] * 200),
    ],
)
async def test_a_query_that_makes_no_sense_is_refused(
    query: str, autojump_clock: MockClock
) -> None:
    """Unknown, repeated, not UTF-8, too much: 422 that says which."""
    async with client() as asking:
        assert error_of(await asking.get(f"/runs?{query}"), 422)["code"] == "VALIDATION_ERROR"


async def test_no_route_passes_over_parameters_that_it_does_not_know(
    autojump_clock: MockClock,
) -> None:
    """A parameter that does nothing is a mistake that somebody should hear of."""
    async with client() as asking:
        for row in TRIED.routes:
            path = re.sub(r"\{\w+\}", "a" * 64, row.path)
            response = await asking.http.request(row.method, f"{path}?nobody=1")
            assert "nobody" in response.json()["error"]["message"], row.path


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Overloaded(3), 503, "OVERLOADED"),
        (DiskFull("a blob cannot be written: [Errno 28] '/var/lib/x.db'"), 503, "OVERLOADED"),
        (LogClosed("the log closed itself: /var/lib/x.db"), 503, "UNAVAILABLE"),
        (OutcomeUnknown("/var/lib/x.db"), 503, "UNAVAILABLE"),
        (ZeroDivisionError("/var/lib/x.py"), 500, "INTERNAL"),
        (ExceptionGroup("g", [OSError("/var/lib/x.py")]), 500, "INTERNAL"),
        (OperationError("CONFLICT", "somebody was faster; try again"), 409, "CONFLICT"),
    ],
)
async def test_whatever_goes_wrong_is_an_error_of_the_table(
    error: Exception,
    status: int,
    code: str,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With its status, when to come again, and nothing of our insides; those are logged."""
    async with client() as asking, serving(asking, error) as broken:
        response = await broken.get("/broken")
        told = error_of(response, status)
        assert told["code"] == code
        assert PATH.search(response.text) is None
        assert ("retry-after" in response.headers) == (status == 503)
        logged = [each for each in caplog.records if each.levelno >= logging.ERROR]
        assert len(logged) == (1 if code == "INTERNAL" else 0)


async def test_an_answer_that_breaks_off_is_not_followed_by_an_error(
    autojump_clock: MockClock,
) -> None:
    """What has begun cannot be taken back: the server is told, and cuts the connection."""

    async def half(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError("in the middle")

    async with client() as asking, serving(asking, half) as broken:
        with pytest.raises(ZeroDivisionError):
            await broken.get("/broken")


@asynccontextmanager
async def serving(asking: Client, broken: Exception | ASGIApp) -> AsyncIterator[Client]:
    """An application with a row that goes wrong."""

    async def handle(request: Request) -> ASGIApp:
        if isinstance(broken, Exception):
            raise broken
        return broken

    row = Route(
        method="GET",
        path="/broken",
        name="broken",
        summary="Break.",
        make=lambda _: handle,
        tag="about",
    )
    other = Client(asking.behind, create_app(asking.behind.node, Settings(), [row]))
    async with other.http:
        yield other


async def test_a_client_that_hangs_up_while_sending_is_nobodys_error(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is answered, nothing is logged."""
    async with client() as asking:
        sent: list[Any] = []

        async def gone() -> Any:
            await trio.lowlevel.checkpoint()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/runs",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
        }
        await asking.app(scope, gone, send)
        assert sent == []
        assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


async def test_pages_of_some_origins_may_ask(autojump_clock: MockClock) -> None:
    """With preflight; they see the headers they need. Others get no word of it."""
    async with client(settings_with(origins=[PAGE.upper() + "/"])) as asking:
        preflight = {"origin": PAGE, "access-control-request-method": "POST"}
        allowed = await asking.http.options("/runs", headers=preflight)
        assert allowed.status_code == 204
        assert allowed.headers["access-control-allow-origin"] == PAGE
        assert "POST" in allowed.headers["access-control-allow-methods"]
        assert "content-type" in allowed.headers["access-control-allow-headers"]
        for path in ("/version", "/nothing"):
            answer = await asking.get(path, headers={"origin": PAGE})
            assert answer.headers["access-control-allow-origin"] == PAGE
            assert answer.headers["vary"] == "origin"
            assert "location" in answer.headers["access-control-expose-headers"]
        other = await asking.get("/version", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers
        assert other.headers["vary"] == "origin"
        refused = await asking.http.options("/runs", headers={**preflight, "origin": "null"})
        assert "access-control-allow-origin" not in refused.headers


async def test_without_origins_nothing_is_said_of_them(autojump_clock: MockClock) -> None:
    """The default is our own pages only."""
    async with client() as asking:
        answer = await asking.get("/version", headers={"origin": PAGE})
        assert not {name for name in answer.headers if name.startswith("access-control")}


def test_every_error_says_what_to_do() -> None:
    """A code without a remedy says it in its message, where it is raised."""
    told_where_raised = {
        "VALIDATION_ERROR",
        "ENTRY_NOT_FOUND",
        "RUN_NOT_TERMINAL",
        "SECRET_REQUIRED",
        "CONFLICT",
        "OVERLOADED",
        "UNAVAILABLE",
        "BAD_REQUEST",
        "HEAD_TOO_LARGE",
        "EXPECTATION_FAILED",
        "REQUEST_TIMEOUT",
        "HOST_REFUSED",
        "ORIGIN_REFUSED",
        "TOO_MANY_CONNECTIONS",
    }
    assert {code for code, kind in ERRORS.items() if not kind.remedy} == told_where_raised


def test_a_surface_is_small_to_make() -> None:
    """What handlers are made for is data."""
    assert set(Surface.__dataclass_fields__) == {"node", "settings", "routes", "facts"}
