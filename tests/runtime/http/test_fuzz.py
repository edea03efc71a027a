"""Whatever is sent, the answer is one that the document promises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.runtime.http.app import routes_of
from perdure.runtime.kernel.errors import ERRORS
from perdure.runtime.kernel.routes.route import Route
from perdure.runtime.plugins.plugin import declared
from tests.features import TRIED
from tests.fuzz import examples
from tests.runtime.http.portal import Answer, Portal, served
from tests.runtime.world import Example

ALL = routes_of(TRIED)
JSON = (b"content-type", b"application/json")
ENTRIES = ("greet", "fail", "exports", "question", "nothing")

words = st.sampled_from(["test", *ENTRIES, "sync", "async", "", "a", "0", "-1", "null", "true"])
texts = words | st.text(max_size=40)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
names = sorted({name for row in ALL for name in row.sources})


@pytest.fixture(scope="module")
def portal() -> Iterator[Portal]:
    """A node that many strangers ask."""
    with served({"test": declared(Example)}, sync_wait=0.01, cancel_grace=0.01) as portal:
        yield portal


@pytest.fixture(scope="module")
def run_id(portal: Portal) -> str:
    """A run that there is."""
    body = msgspec.json.encode({"plugin_id": "test", "entry_id": "exports", "args": {}})
    return str(portal.ask("POST", "/runs", b"", [JSON], body).json["run_id"])


def judge(row: Route, answer: Answer) -> None:
    """Hold an answer to what the row promises."""
    assert answer.status < 500, answer
    if answer.status in row.statuses:
        if row.response is not None:
            msgspec.convert(answer.json, row.response)
        return
    error = answer.json["error"]
    assert error["code"] in row.errors, (row.path, error)
    assert ERRORS[error["code"]].status == answer.status
    assert {"code", "message", "details"} <= set(error)


def address(row: Route, run_id: str, data: st.DataObject) -> str:
    """An address of a row, with the run that there is or with anything."""
    path = row.path
    for name in row.named:
        known = st.just(run_id) if name == "run_id" else st.just("0" * 64)
        strange = st.text(min_size=1, max_size=30).filter(lambda text: "/" not in text)
        path = path.replace(f"{{{name}}}", data.draw(known | strange, label=name))
    return path


# Bodies

posted = st.sampled_from([row for row in ALL if row.taken_from("body")])


@st.composite
def bodies(draw: st.DrawFn, row: Route) -> bytes:
    """A body that is almost right, or anything at all."""
    likely = {
        "plugin_id": st.just("test"),
        "entry_id": st.sampled_from(ENTRIES),
        "args": st.just({}) | st.dictionaries(texts, values, max_size=3),
        "mode": st.sampled_from(["sync", "async", "x"]),
    }
    fields = {name: likely.get(name, values) | values for name in row.taken_from("body")}
    right = st.fixed_dictionaries({}, optional=fields)
    value = draw(right | right | st.dictionaries(texts, values, max_size=4) | values)
    try:
        data = msgspec.json.encode(value)
    except (UnicodeEncodeError, msgspec.MsgspecError):
        data = repr(value).encode("utf-8", "surrogatepass")
    return data if draw(st.integers(0, 3)) else broken(draw, data)


def broken(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes with something else in their place somewhere."""
    at = draw(st.integers(0, len(data)))
    cut = draw(st.integers(0, 4))
    return data[:at] + draw(st.binary(max_size=6)) + data[at + cut :]


@examples()
@given(data=st.data())
def test_no_body_breaks_anything(portal: Portal, run_id: str, data: st.DataObject) -> None:
    """An answer of the table, and never our fault."""
    row = data.draw(posted)
    body = data.draw(bodies(row) | st.binary(max_size=200), label="body")
    answer = portal.ask("POST", address(row, run_id, data), b"", [JSON], body)
    judge(row, answer)


# Queries and addresses

read = st.sampled_from([row for row in ALL if row.method == "GET"])
pairs = st.lists(st.tuples(st.sampled_from(names) | texts, texts), max_size=4)
headers = st.lists(
    st.tuples(
        st.sampled_from([b"range", b"if-range", b"if-none-match", b"origin", b"content-length"]),
        st.sampled_from(
            [b"bytes=0-1", b"bytes=-1", b"bytes=9-", b"*", b"bytes=" + b"9" * 30 + b"-"]
        )
        | st.binary(max_size=20),
    ),
    max_size=3,
)


@st.composite
def queries(draw: st.DrawFn, row: Route) -> bytes:
    """A query that is almost right, or anything at all."""
    fields = row.taken_from("query")
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return draw(st.binary(max_size=60))
    if kind == 1 or not fields:
        chosen: list[Any] = draw(pairs)
    else:
        moments = st.sampled_from(["0", "1e9", "2030-01-01", "1" * 19, "9" * 400, "-5", "1e999999"])
        chosen = draw(st.lists(st.tuples(st.sampled_from(fields), texts | moments), max_size=3))
    return urlencode(chosen, errors="surrogatepass").encode()


@examples()
@given(data=st.data())
def test_no_query_breaks_anything(portal: Portal, run_id: str, data: st.DataObject) -> None:
    """An answer of the table, and never our fault, whatever the address and the headers."""
    row = data.draw(read)
    query = data.draw(queries(row), label="query")
    sent = data.draw(headers, label="headers")
    answer = portal.ask("GET", address(row, run_id, data), query, sent)
    judge(row, answer)
