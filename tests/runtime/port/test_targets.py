"""What is asked for, in every form."""

from __future__ import annotations

import pytest

from tests.runtime.port.world import (
    HOST,
    Echo,
    serving,
)


@pytest.mark.parametrize(
    ("line", "status", "path"),
    [
        (b"GET http://localhost/x?q HTTP/1.1", 200, "/x"),
        (b"GET http://LOCALHOST HTTP/1.1", 200, "/"),
        (b"GET http://localhost?q HTTP/1.1", 200, "/"),
        (b"GET http://other/x HTTP/1.1", 400, None),
        (b"GET ftp://localhost/x HTTP/1.1", 400, None),
        (b"GET x HTTP/1.1", 400, None),
        (b"GET * HTTP/1.1", 400, None),
        (b"CONNECT localhost:443 HTTP/1.1", 400, None),
        (b"CONNECT / HTTP/1.1", 400, None),
        (b"GET /\xc3\xa9 HTTP/1.1", 400, None),
        (b"GET /%ff HTTP/1.1", 400, None),
        (b"GET /%00 HTTP/1.1", 400, None),
        (b"GET /#part HTTP/1.1", 400, None),
        (b"GET /%zz HTTP/1.1", 200, "/%zz"),
        (b"GET /a//b/../c HTTP/1.1", 200, "/a//b/../c"),
        (b"GET / HTTP/2.0", 400, None),
        (b"GET / HTTP/0.9", 400, None),
        (b"GET /", 400, None),
        (b"OPTIONS * HTTP/1.1", 204, None),
        (b"BREW / HTTP/1.1", 200, "/"),
    ],
)
async def test_targets_of_every_form_get_a_sane_answer(
    line: bytes, status: int, path: str | None
) -> None:
    """A path, an address of this very server, or `*` for OPTIONS; nothing else."""
    echo = Echo()
    async with serving(echo) as world:
        client = await world.connect()
        await client.send(line + b"\r\n" + HOST + b"\r\n")
        answer = await client.response()
    assert answer.status == status
    assert (status == 204) == ("content-length" not in answer.headers)
    assert [seen[1] for seen in echo.seen] == ([] if path is None else [path])
