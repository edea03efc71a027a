"""A server asked without an event loop, in the clear and over TLS."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from perdure.runtime.client.address import Address, Announced, Named
from perdure.runtime.client.blocking import BlockingRemote
from perdure.runtime.kernel.data_directory import DataDir
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.log_reader import completed
from tests.runtime.server.certificate import write_certificate
from tests.runtime.server.process import server


def test_a_server_is_asked_over_tls_by_the_certificate_that_it_announces(tmp_path: Path) -> None:
    """The certificate that it was started with is trusted; to others it is a stranger."""
    certificate, key = write_certificate(tmp_path)
    options = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    with server(tmp_path / "data", *options) as process:
        with closing(BlockingRemote(Announced(DataDir(tmp_path / "data")))) as remote:
            assert completed(remote.call("runs.list", {}))["runs"] == []
            with pytest.raises(OperationError) as refused:
                completed(remote.call("runs.get", {"run_id": "none"}))
            assert refused.value.code == "RUN_NOT_FOUND"
            assert completed(remote.call("runs.list", {}))["runs"] == [], "it can be asked on"
        with (
            closing(BlockingRemote(Named(Address.of(process.url)))) as stranger,
            pytest.raises(OperationError, match="certificate"),
        ):
            completed(stranger.call("runs.list", {}))


@contextmanager
def cutting_once(url: str, after: int) -> Iterator[str]:
    """A proxy that cuts its first connection after so many bytes from the server."""
    address = Address.of(url)
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def pump(source: socket.socket, sink: socket.socket, left: int) -> None:
            while left and (data := source.recv(min(left, 4096))):
                sink.sendall(data)
                left -= len(data)
            for each in (source, sink):
                each.shutdown(socket.SHUT_RDWR)

        def serve() -> None:
            for left in (after, 1 << 30):
                client, _ = listener.accept()
                upstream = socket.create_connection((address.host, address.port))
                for one, other, most in ((client, upstream, 1 << 30), (upstream, client, left)):
                    threading.Thread(target=_quietly, args=(pump, one, other, most)).start()

        threading.Thread(target=_quietly, args=(serve,), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def _quietly(work: object, *args: object) -> None:
    try:
        work(*args)  # type: ignore[operator]
    except OSError:
        pass


@pytest.mark.parametrize("after", [0, 50, 300])
def test_a_reading_call_whose_answer_was_lost_is_asked_again(tmp_path: Path, after: int) -> None:
    """In the handshake, or before the answer is whole: the caller does not notice."""
    with (
        server(tmp_path / "data") as process,
        cutting_once(process.url, after) as url,
        closing(BlockingRemote(Named(Address.of(url)))) as remote,
    ):
        assert completed(remote.call("runs.list", {}))["runs"] == []


def test_a_server_that_only_listens_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After the patience of each try it is told."""
    monkeypatch.setattr("perdure.runtime.client.blocking.PATIENCE", 0.05)
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with (
            closing(BlockingRemote(Named(Address.of(url)))) as remote,
            pytest.raises(OperationError, match="does not answer"),
        ):
            completed(remote.call("runs.list", {}))
