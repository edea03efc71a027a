"""A server asked without an event loop, in the clear and over TLS."""

from __future__ import annotations

import socket
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import cbor2
import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection

from perdure.runtime.client import blocking
from perdure.runtime.client.address import Address, Announced, Named
from perdure.runtime.client.blocking import BlockingRemote
from perdure.runtime.kernel.completion import completed
from perdure.runtime.kernel.data_directory import DataDir
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.socket_protocol import CBOR as SUBPROTOCOL
from tests.runtime.server.certificate import write_certificate
from tests.runtime.server.process import server


def test_a_server_is_asked_over_tls_by_the_certificate_that_it_announces(tmp_path: Path) -> None:
    """The certificate that it was started with is trusted."""
    certificate, key = write_certificate(tmp_path)
    options = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    with (
        server(tmp_path / "data", *options),
        closing(BlockingRemote(Announced(DataDir(tmp_path / "data")))) as remote,
    ):
        assert completed(remote.call("runs.list", {}))["runs"] == []
        with pytest.raises(OperationError) as refused:
            completed(remote.call("runs.get", {"run_id": "none"}))
        assert refused.value.code == "RUN_NOT_FOUND"
        assert completed(remote.call("runs.list", {}))["runs"] == [], "it can be asked on"


@pytest.mark.parametrize("cut_at", [1, 2])
def test_a_reading_call_whose_answer_was_lost_is_asked_again(
    tmp_path: Path, cut_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the handshake, or before the answer is whole: the caller does not notice."""
    receive, times = blocking._Connection._receive, 0

    def cut(connection: Any) -> list[bytes]:
        nonlocal times
        times += 1
        if times == cut_at:
            connection._socket.shutdown(socket.SHUT_RDWR)
        return receive(connection)

    monkeypatch.setattr(blocking._Connection, "_receive", cut)
    with (
        server(tmp_path / "data") as process,
        closing(BlockingRemote(Named(Address.of(process.url)))) as remote,
    ):
        assert completed(remote.call("runs.list", {}))["runs"] == []
    assert times > cut_at


def test_an_answer_that_comes_with_the_close_is_given_and_the_next_call_connects_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that drains: no call fails, and none uses up a try on the old connection."""
    monkeypatch.setattr("perdure.runtime.client.blocking.TRIES", 1)
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=answer_and_close, args=(listener, 2), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with closing(BlockingRemote(Named(Address.of(url)))) as remote:
            for number in range(2):
                assert completed(remote.call("runs.list", {})) == {"number": number}
        thread.join()


def answer_and_close(listener: socket.socket, times: int) -> None:
    """Serve so many connections: one answer each, with the Close in the same bytes."""
    for number in range(times):
        peer, _ = listener.accept()
        with peer:
            half = WSConnection(ConnectionType.SERVER)
            for reply in (
                [AcceptConnection(subprotocol=SUBPROTOCOL)],
                [
                    BytesMessage(data=cbor2.dumps({"id": 1, "ok": {"number": number}})),
                    CloseConnection(code=1012),
                ],
            ):
                half.receive_data(peer.recv(65536))
                list(half.events())
                peer.sendall(b"".join(half.send(event) for event in reply))
            half.receive_data(peer.recv(65536))
            assert [type(event) for event in half.events()] == [CloseConnection]


def test_a_server_that_becomes_silent_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has accepted the call, and gets no second one: its user is told after one patience."""
    monkeypatch.setattr("perdure.runtime.client.blocking.PATIENCE", 0.05)
    accepted = 0

    def shake_hands(listener: socket.socket) -> None:
        nonlocal accepted
        half = WSConnection(ConnectionType.SERVER)
        peer, _ = listener.accept()
        accepted += 1
        with peer:
            half.receive_data(peer.recv(65536))
            list(half.events())
            peer.sendall(half.send(AcceptConnection(subprotocol=SUBPROTOCOL)))
            while peer.recv(65536):
                pass

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=shake_hands, args=(listener,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with (
            closing(BlockingRemote(Named(Address.of(url)))) as remote,
            pytest.raises(OperationError, match="does not answer"),
        ):
            completed(remote.call("runs.list", {}))
        thread.join()
    assert accepted == 1
