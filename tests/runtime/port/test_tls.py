"""TLS by certificate files."""

from __future__ import annotations

import datetime as dt
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from perdure.eventlog.env import RealEnv
from perdure.runtime.port import (
    BadCertificate,
    CannotListen,
    Port,
    PortLimits,
    Upgrade,
    open_listeners,
    tls_context,
)
from tests.runtime.port.world import Client, Echo, World, post, request


def certificate(directory: Path, name: str = "server") -> tuple[Path, Path]:
    """A certificate for localhost, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = directory / f"{name}.pem", directory / f"{name}.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


class Secure(World):
    """A port with TLS."""

    context: ssl.SSLContext

    async def shake(
        self, context: ssl.SSLContext | None = None
    ) -> trio.SSLStream[trio.SocketStream]:
        """Connect and shake hands."""
        raw = await trio.open_tcp_stream(*self.address)
        self.clients.append(Client(raw))
        stream = trio.SSLStream(
            raw, context or self.context, server_hostname="localhost", https_compatible=True
        )
        await stream.do_handshake()
        return stream


@asynccontextmanager
async def secure(tmp_path: Path, app: Echo, **options: object) -> AsyncIterator[Secure]:
    """A port with TLS for the length of a block."""
    files = certificate(tmp_path)
    port = Port(app, env=RealEnv(), **options)  # type: ignore[arg-type]
    (listener,) = await open_listeners("127.0.0.1", 0, tls=tls_context(*files))
    async with trio.open_nursery() as nursery:
        await nursery.start(port.serve, [listener])
        world = Secure(port, listener.transport_listener)  # type: ignore[attr-defined]
        world.context = ssl.create_default_context(cafile=str(files[0]))
        try:
            yield world
        finally:
            for client in world.clients:
                await trio.aclose_forcefully(client.stream)
            nursery.cancel_scope.cancel()


async def exchanged(stream: trio.SSLStream[trio.SocketStream], data: bytes) -> bytes:
    """Send something and read until the other side closes."""
    await stream.send_all(data)
    return b"".join([bytes(part) async for part in stream])


async def test_requests_are_served_over_tls(tmp_path: Path) -> None:
    """The app sees https, and the origin of the page is https too."""
    echo = Echo()
    close = b"connection: close\r\norigin: https://localhost\r\n"
    async with secure(tmp_path, echo) as world:
        stream = await world.shake()
        assert stream.version() == "TLSv1.3"
        assert stream.selected_alpn_protocol() is None
        big = b"x" * 300_000
        raw = await exchanged(stream, request("/a") + post(big, "/b", close))
        assert raw.count(b"HTTP/1.1 200 OK") == 2
        assert raw.endswith(big)
    assert [scope["scheme"] for scope in echo.scopes] == ["https", "https"]
    assert echo.scopes[0]["client"][0] == "127.0.0.1"


async def test_an_origin_without_tls_is_another_one(tmp_path: Path) -> None:
    """A page that anybody on the way could have written may not use a secure port."""
    async with secure(tmp_path, Echo()) as world:
        stream = await world.shake()
        raw = await exchanged(stream, request("/", b"origin: http://localhost\r\n"))
        assert raw.startswith(b"HTTP/1.1 403 ")


async def test_upgrades_work_over_tls(tmp_path: Path) -> None:
    """There is a stream, and no socket to write to."""

    async def handler(upgrade: Upgrade) -> None:
        assert upgrade.socket is None
        assert upgrade.scheme == "https"
        await upgrade.stream.send_all(b"hello")

    async with secure(tmp_path, Echo(), upgrade=handler) as world:
        stream = await world.shake()
        head = request("/ws", b"connection: upgrade\r\nupgrade: websocket\r\n")
        assert await exchanged(stream, head) == b"hello"


async def test_old_tls_and_no_tls_are_refused(tmp_path: Path) -> None:
    """Nothing below TLS 1.2; plain HTTP is no handshake. Others are served on."""
    async with secure(tmp_path, Echo()) as world:
        old = ssl.create_default_context(cafile=str(tmp_path / "server.pem"))
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert (await world.shake(old)).version() == "TLSv1.2"
        plain = await world.connect()
        await plain.send(request())
        assert b"HTTP" not in await plain.rest()
        stream = await world.shake()
        assert b"200 OK" in await exchanged(stream, request("/", b"connection: close\r\n"))
    assert world.port.counters.protocol_errors == 1


async def test_a_handshake_has_its_time(tmp_path: Path) -> None:
    """A client that does not shake hands is closed."""
    async with secure(tmp_path, Echo(), limits=PortLimits(handshake=0.1)) as world:
        silent = await world.connect()
        with trio.fail_after(5):
            assert await silent.closed()
        assert world.port.connections == 0


def test_the_context_asks_for_tls_1_2(tmp_path: Path) -> None:
    """Whatever the system's default is."""
    assert tls_context(*certificate(tmp_path)).minimum_version == ssl.TLSVersion.TLSv1_2


def test_bad_files_are_named(tmp_path: Path) -> None:
    """The message says which file, and what to do."""
    made, key = certificate(tmp_path)
    _, other = certificate(tmp_path, "other")
    with pytest.raises(BadCertificate, match=r"certificate .*missing.* cannot be read"):
        tls_context(tmp_path / "missing", key)
    with pytest.raises(BadCertificate, match="does not belong to"):
        tls_context(made, other)
    empty = tmp_path / "empty"
    empty.write_bytes(b"\x30\x82")
    with pytest.raises(BadCertificate, match="no certificate in PEM form"):
        tls_context(empty, key)
    with pytest.raises(BadCertificate, match="no key in PEM form"):
        tls_context(made, empty)
    with pytest.raises(BadCertificate, match="issued together"):
        tls_context(key, key)


def test_a_key_with_a_password_is_not_asked_for_on_the_terminal(tmp_path: Path) -> None:
    """A server has nobody to ask."""
    made, key = certificate(tmp_path)
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(
        loaded.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(BadCertificate, match="has a password"):
        tls_context(made, key)


async def test_a_port_in_use_is_said_so() -> None:
    """With what to do about it."""
    (taken,) = await open_listeners("127.0.0.1", 0)
    async with taken:
        number = taken.socket.getsockname()[1]  # type: ignore[attr-defined]
        with pytest.raises(CannotListen, match="choose another port"):
            await open_listeners("127.0.0.1", number)
    with pytest.raises(CannotListen, match="no such address"):
        await open_listeners("nowhere.invalid", 0)


async def test_all_addresses_of_a_host_have_the_same_port() -> None:
    """Also when any free one was asked for."""
    listeners = await open_listeners("localhost", 0)
    numbers = {listener.socket.getsockname()[1] for listener in listeners}  # type: ignore[attr-defined]
    for listener in listeners:
        await listener.aclose()
    assert len(numbers) == 1
