"""A client's WebSocket as bytes, against the library's server half."""

from __future__ import annotations

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping

from perdure.runtime.client.address import Address
from perdure.runtime.client.wire import ConnectionLost, Wire
from perdure.runtime.kernel.errors import OperationError


def open_pair() -> tuple[Wire, WSConnection]:
    """A wire after its handshake, and the server's half."""
    wire, server = Wire(Address.of("http://localhost")), WSConnection(ConnectionType.SERVER)
    server.receive_data(wire.hello())
    list(server.events())
    assert wire.receive(server.send(AcceptConnection(subprotocol="perdure.v1+cbor"))) == (
        [],
        b"",
        None,
        False,
    )
    assert wire.is_open
    return wire, server


def test_messages_before_a_close_are_given_first() -> None:
    """An answer that came in the same bytes as the end is not lost."""
    wire, server = open_pair()
    data = server.send(BytesMessage(data=b"answer")) + server.send(CloseConnection(code=1012))
    messages, reply, lost, _ = wire.receive(data)
    assert messages == [b"answer"]
    assert "1012" in str(lost), "it is told with the messages, not with the next bytes"
    server.receive_data(reply)
    assert [type(event) for event in server.events()] == [CloseConnection], "it is answered"


def test_nothing_is_sent_after_a_close() -> None:
    """It is a lost connection, whatever the library calls it."""
    wire, server = open_pair()
    wire.receive(server.send(CloseConnection(code=1012)))
    with pytest.raises(ConnectionLost, match="1012"):
        wire.message(b"call")


def test_pieces_make_one_message_and_pings_are_answered() -> None:
    """However the bytes are cut."""
    wire, server = open_pair()
    data = server.send(BytesMessage(data=b"an", message_finished=False))
    data += server.send(Ping()) + server.send(BytesMessage(data=b"swer"))
    messages, replies = list[bytes](), b""
    for byte in data:
        more, reply, _, _ = wire.receive(bytes([byte]))
        messages += more
        replies += reply
    assert messages == [b"answer"]
    assert replies


@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 101"])
def test_an_end_in_the_handshake_is_a_lost_connection(before: bytes) -> None:
    """It may be tried again."""
    wire = Wire(Address.of("http://localhost"))
    wire.hello()
    if before:
        assert wire.receive(before).lost is None
    assert isinstance(wire.receive(b"").lost, ConnectionLost)


def test_what_speaks_no_http_is_no_perdure() -> None:
    """It is not tried again; the address may lack the s of https."""
    wire = Wire(Address.of("http://localhost"))
    wire.hello()
    with pytest.raises(OperationError, match="is it https:") as refused:
        wire.receive(b"no HTTP at all\r\n\r\n")
    assert refused.value.code == "NOT_FOUND"


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (404, b"<html>", "NOT_FOUND"),
        (404, b'{"error":{"code":"NOT_FOUND","message":"m","details":null}}', "NOT_FOUND"),
        (502, b"<html>", "UNAVAILABLE"),
        (502, b"\xff\xfe", "UNAVAILABLE"),
        (502, b'{"error":{"code":"CONFLICT","message":1,"details":null}}', "UNAVAILABLE"),
        (503, b'{"error":{"code":"UNAVAILABLE","message":"m","details":null}}', "UNAVAILABLE"),
        (421, b'{"error":{"code":"HOST_REFUSED","message":"m","details":null}}', "HOST_REFUSED"),
    ],
)
def test_a_refused_handshake_is_an_error_of_the_table(status: int, body: bytes, code: str) -> None:
    """As the server says it; what is no Perdure is told apart from one that restarts."""
    wire = Wire(Address.of("http://localhost"))
    wire.hello()
    head = b"HTTP/1.1 %d No\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
    with pytest.raises(OperationError) as refused:
        wire.receive(head + body)
    assert refused.value.code == code
    assert ("there is no Perdure at http://localhost" in refused.value.message) == (
        code == "NOT_FOUND" or status == 502
    )
