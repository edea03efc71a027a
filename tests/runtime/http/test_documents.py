"""The document, the page, the capabilities: made from what is served."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any
from unittest import mock

import msgspec
import pytest
from trio.testing import MockClock

from perdure.eventlog.follow import FollowLimits
from perdure.runtime.features import FEATURES
from perdure.runtime.http import health
from perdure.runtime.http.app import create_app, routes_of
from perdure.runtime.http.capabilities import about_routes
from perdure.runtime.http.event_routes import event_routes
from perdure.runtime.http.openapi import document
from perdure.runtime.http.page import page, policy
from perdure.runtime.kernel.budget import Budget
from perdure.runtime.kernel.errors import ERRORS
from perdure.runtime.kernel.routes.route import Route
from perdure.runtime.kernel.settings import Settings
from perdure.runtime.websocket import SocketLimits
from perdure.runtime.websocket.asyncapi_route import ASYNCAPI
from perdure.runtime.websocket.conversation import ConversationLimits
from perdure.runtime.websocket.sockets import socket_facts
from tests.features import TRIED
from tests.repository.tree import ROOT
from tests.runtime.http.client import client
from tests.runtime.settings import settings_with

ALL = routes_of(TRIED)  # of the application by itself
METRICS = health.metrics_route(mock.Mock())
SERVED = routes_of(  # by `perdure serve`
    FEATURES, [*event_routes(FEATURES), *health.HEALTH, METRICS, ASYNCAPI]
)
DOCUMENT = document(ALL, TRIED, "1")
GUIDE = (ROOT / "docs" / "http.md").read_text("utf-8")
ELSEWHERE = {
    "blobs.collect",
    "blobs.read",
    "log.follow",
    "runs.wait",
}  # the command line, a stream of bytes, SSE, a parameter of runs.get


def name(row: Route) -> str:
    """A row as people write it."""
    return f"{row.method} {row.path}"


def test_every_operation_has_an_address() -> None:
    """All but those that have another form over HTTP."""
    bound = {row.needs for row in TRIED.routes if row.needs is not None}
    assert bound == set(TRIED.operations) - ELSEWHERE


def test_the_guide_has_the_table() -> None:
    """Each route, its operation and its statuses, and no other."""
    rows = re.findall(r"^\| ([A-Z]+) \| `(/.*?)` \| `(.*?)` \| (.*?) \|$", GUIDE, re.MULTILINE)
    assert rows == [
        (row.method, row.path, row.name, ", ".join(map(str, row.statuses))) for row in SERVED
    ]


@pytest.mark.parametrize("row", ALL, ids=name)
def test_examples_are_of_their_types(row: Route) -> None:
    """What is shown as sent and answered could be."""
    if row.example:
        in_path = dict.fromkeys(row.named, "x")
        assert row.request is not None
        msgspec.convert({**row.example, **in_path}, row.request)
    if row.answer is not None:
        assert msgspec.convert(row.answer, row.response) == row.answer


def test_every_argument_comes_from_one_place() -> None:
    """Path, query or body, as the document says."""
    for row in ALL:
        described = DOCUMENT["paths"][row.path][row.method.lower()]
        found = {each["name"]: each["in"] for each in described.get("parameters", ())}
        for header in row.reads:
            assert found.pop(header) == "header"
        if row.taken_from("body"):
            assert row.request is not None
            body = DOCUMENT["components"]["schemas"][row.request.__name__]
            found |= dict.fromkeys(body["properties"], "body")
            assert not set(body["required"]) & set(row.named)
        assert found == row.sources, name(row)


def test_every_error_of_an_operation_is_in_the_document() -> None:
    """Under its status, by its code."""
    for row in ALL:
        responses = DOCUMENT["paths"][row.path][row.method.lower()]["responses"]
        for code in row.errors:
            parts = responses[str(ERRORS[code].status)]["content"]["application/json"]["schema"]
            assert code in str(parts), (name(row), code)
        assert set(map(str, row.statuses)) <= set(responses)


def test_every_reference_leads_somewhere() -> None:
    """No schema is missing, none is there for nobody."""
    text = msgspec.json.encode(DOCUMENT).decode()
    named = set(re.findall(r'"#/components/schemas/(\w+)"', text))
    assert named == set(DOCUMENT["components"]["schemas"])
    ids = [each["operationId"] for path in DOCUMENT["paths"].values() for each in path.values()]
    assert len(ids) == len(set(ids)) == len(ALL)


async def test_the_document_is_served(autojump_clock: MockClock) -> None:
    """OpenAPI 3.1, of what is served and not of what could be."""
    async with client() as asking:
        served = (await asking.get("/openapi.json")).json()
        assert served["openapi"] == "3.1.0"
        assert served["paths"] == msgspec.json.decode(msgspec.json.encode(DOCUMENT["paths"]))


class Tags(HTMLParser):
    """Notes what a page consists of."""

    def __init__(self) -> None:
        """Start with nothing."""
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.links: set[str] = set()
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.seen.add(tag)
        if tag != "meta":
            self.open.append(tag)
        for key, value in attrs:
            assert key not in {"style", "src", "srcset"}
            assert not key.startswith("on")
            if key == "href":
                self.links.add(str(value))
            if key == "id":
                self.ids.add(str(value))

    def handle_endtag(self, tag: str) -> None:
        """Note an end."""
        assert self.open.pop() == tag


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("localhost:8123", "http://localhost:8123"),
        ("[::1]:9", "http://[::1]:9"),
        ('evil"$(id)', "http://localhost"),
    ],
)
async def test_examples_on_the_page_name_the_server_that_was_asked(
    autojump_clock: MockClock, host: str, shown: str
) -> None:
    """So that they can be typed as they stand there."""
    async with client() as asking:
        text = (await asking.get("/docs", headers={"host": host})).text
        assert f"curl &quot;{shown}/plugins&quot;" in text
        assert "7373" not in text
        assert ".invalid" not in text


async def test_the_page_is_whole_and_needs_nothing_else(autojump_clock: MockClock) -> None:
    """Well-formed, no script, nothing from elsewhere, every operation, under a strict policy."""
    async with client() as asking:
        response = await asking.get("/docs")
        tags = Tags()
        tags.feed(response.text)
        assert tags.open == []
        assert not tags.seen & {"script", "link", "iframe", "img", "object", "form"}
        inside = {link[1:] for link in tags.links if link.startswith("#")}
        assert inside <= tags.ids
        assert tags.links - {f"#{each}" for each in inside} == {
            "/openapi.json",
            "/asyncapi.json",
            "/capabilities",
        }
        for row in ALL:
            assert row.name.replace(".", "_") in inside
        assert response.headers["content-security-policy"] == policy()
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        assert "'unsafe" not in policy()


def test_the_page_shows_text_as_text() -> None:
    """Nothing in the document becomes markup."""
    strange: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(DOCUMENT))
    strange["info"]["description"] = "<script>alert(1)</script>"
    assert "<script" not in page(strange)


async def test_capabilities_are_what_is_in_force(autojump_clock: MockClock) -> None:
    """Read from the limits and settings themselves."""
    settings = settings_with(body_limit=4096)
    async with client(settings, sync_wait=7, runs=5, inline_limit=99, timeout=60) as asking:
        told = (await asking.get("/capabilities")).json()
        assert told["limits"] == {
            **told["limits"],
            "runs": 5,
            "timeout": 60,
            "body_bytes": 4096,
            "inline_bytes": 99,
            "page": 500,
            "depth": 32,
            "values": 20_000,
        }
        assert told["windows"]["sync_wait"] == 7
        assert told["windows"]["idempotency"] == 86400
        assert told["rates"] == {"progress": 0.1, "progress_items": 0.5}
        assert set(told["channels"]) == set(TRIED.channels)
        assert set(told["errors"]) == set(TRIED.errors)
        assert told["operations"] == sorted(TRIED.operations)
        assert (await asking.get("/version")).json()["version"] == told["version"]


async def test_capabilities_know_the_limits_of_followers_and_sockets(
    autojump_clock: MockClock,
) -> None:
    """Those that the server beside it has, and not what they usually are."""
    async with client() as asking:
        node = asking.behind.node
        node.channels.limits = FollowLimits(heartbeat=3)
        sockets = SocketLimits(conversation=ConversationLimits(calls=7))
        app = create_app(node, Settings(), facts=socket_facts(sockets, Budget()))
        asking.http._transport.app = app  # type: ignore[attr-defined]
        told = (await asking.get("/capabilities")).json()
        assert told["windows"]["heartbeat"] == 3
        assert told["websocket"]["calls"] == 7


async def test_a_module_adds_to_the_surface_with_rows(autojump_clock: MockClock) -> None:
    """They are served, described and shown like all others."""
    async with client() as asking:
        more = Route(
            method="GET",
            path="/more",
            name="more.things",
            summary="Show more.",
            make=about_routes(FEATURES)[-1].make,
            tag="things",
        )
        app = create_app(asking.behind.node, Settings(), [more])
        asking.http._transport.app = app  # type: ignore[attr-defined]
        assert (await asking.get("/more")).json()["name"] == "perdure"
        assert "/more" in (await asking.get("/openapi.json")).json()["paths"]
        assert "/more" in (await asking.get("/docs")).text
