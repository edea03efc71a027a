"""Addresses that are mistakes, and what their users are told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
import trio

from perdure.runtime.client.address import Address, Named, NotAnAddress
from perdure.runtime.client.blocking import BlockingRemote
from perdure.runtime.kernel.completion import completed
from perdure.runtime.kernel.errors import OperationError
from tests.runtime.client.sides import remote_at
from tests.runtime.server.certificate import write_certificate
from tests.runtime.server.process import server


@pytest.mark.parametrize(
    "url",
    [
        "localhost",
        "ws://127.0.0.1:7373",
        "http://",
        "http://h:0",
        "http://h:65536",
        "http://h:many",
        "http://:secret@h",
        "http://user:secret@h:99999",
        "http://a..b/",
        f"http://{'x' * 64}.org",
        "http://user@h",
        "http://h?q",
        "http://h#f",
        "http://h/a b",
        "http://h/ü",
        "http://h/\n",
        "http://[::1",
    ],
)
def test_a_text_that_is_no_address_is_refused(url: str) -> None:
    """Before anything is sent, and without showing what may be a password."""
    with pytest.raises(NotAnAddress) as refused:
        Address.of(url)
    assert "secret" not in str(refused.value)


def test_an_address_has_a_host_a_port_and_maybe_a_path() -> None:
    """Its WebSocket is below its path; ports are those of HTTP if none is named."""
    address = Address.of("https://host/perdure/")
    assert (address.host, address.port, address.target) == ("host", 443, "/perdure/ws")
    assert Address.of("http://[::1]:7373").authority == "[::1]:7373"
    assert Address.of("http://host").port == 80


async def refusal(url: str) -> OperationError:
    """What both ways to ask a server tell of an address; it is the same."""

    def ask() -> OperationError:
        with closing(BlockingRemote(Named(Address.of(url)))) as blocking:
            return _refused(lambda: completed(blocking.call("runs.list", {})))

    told = await trio.to_thread.run_sync(ask)
    with pytest.raises(OperationError) as refused:
        async with remote_at(url):
            pass
    assert (told.code, told.message) == (refused.value.code, refused.value.message)
    return told


def _refused(ask: Callable[[], object]) -> OperationError:
    with pytest.raises(OperationError) as refused:
        ask()
    return refused.value


async def test_a_certificate_that_is_not_trusted_says_how_to_trust_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no use to try again: the certificate has to be named, in a file that has one."""
    certificate, key = write_certificate(tmp_path)
    options = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    with server(tmp_path / "data", *options) as process:
        told = await refusal(process.url)
        assert told.code == "VALIDATION_ERROR"
        assert "its certificate is not trusted" in told.message
        assert told.message.endswith("name one to trust in SSL_CERT_FILE")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        async with remote_at(process.url) as client:
            assert (await client.call("runs.list", {}))["runs"] == []
        for named in (tmp_path / "nowhere", key):
            monkeypatch.setenv("SSL_CERT_FILE", str(named))
            told = await refusal(process.url)
            assert told.code == "VALIDATION_ERROR"
            assert told.message.startswith(f"SSL_CERT_FILE names {named}, which holds no")


async def test_tls_where_there_is_none_says_so(tmp_path: Path) -> None:
    """The address begins with http://."""
    with server(tmp_path / "data") as process:
        told = await refusal(process.url.replace("http", "https"))
    assert told.code == "VALIDATION_ERROR"
    assert "write http:// instead of https://" in told.message


async def test_a_host_that_nobody_knows_is_a_mistake() -> None:
    """Names that end so are never given to a host."""
    told = await refusal("http://perdure.invalid:7373")
    assert told.code == "VALIDATION_ERROR"
    assert "no host has this name" in told.message


@asynccontextmanager
async def silent_server() -> AsyncIterator[str]:
    """A server that accepts connections and says nothing; gives its address."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        yield f"http://127.0.0.1:{listener.socket.getsockname()[1]}"


async def test_a_server_that_accepts_and_is_silent_is_given_up_after_one_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However it is asked, its user is told after the time that connecting may take."""
    monkeypatch.setattr("perdure.runtime.client.blocking.CONNECTING", 0.05)
    monkeypatch.setattr("perdure.runtime.client.remote_connection.CONNECTING", 0.05)
    async with silent_server() as url:
        with closing(BlockingRemote(Named(Address.of(url)))) as blocking:
            told = _refused(lambda: completed(blocking.call("runs.list", {})))
        with pytest.raises(OperationError, match=r"silent for 0\.05 seconds") as refused:
            async with remote_at(url):
                pass
    for error in (told, refused.value):
        assert error.code == "UNAVAILABLE"
        assert f"the server at {url} does not answer" in error.message
