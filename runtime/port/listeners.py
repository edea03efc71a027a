"""Sockets that listen, plain or with TLS."""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Any, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BACKLOG: Final = 1024


class CannotListen(Exception):
    """The port cannot be opened. The message says why and what to do."""


async def open_listeners(
    host: str, port: int, *, tls: ssl.SSLContext | None = None, backlog: int = BACKLOG
) -> Sequence[trio.abc.Listener[Any]]:
    """Listen on all addresses of a host; port 0 takes a free one, the same for all of them."""
    found = await _resolved(host, port)
    listeners: list[trio.SocketListener] = []
    try:
        for family, address in found:
            taken = port or (listeners[0].socket.getsockname()[1] if listeners else 0)
            listeners.append(_listen(family, (address[0], taken, *address[2:]), backlog))
    except OSError as error:
        for listener in listeners:
            listener.socket.close()
        raise CannotListen(
            f"cannot listen on {host} port {port}: {error.strerror};"
            " is another process there already? choose another port"
        ) from error
    if tls is None:
        return listeners
    return [trio.SSLListener(listener, tls, https_compatible=True) for listener in listeners]


async def _resolved(host: str, port: int) -> list[tuple[int, tuple[Any, ...]]]:
    try:
        found = await trio.socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise CannotListen(
            f"cannot listen on {host}: there is no such address here; use 127.0.0.1 for this"
            " machine only, 0.0.0.0 for all networks"
        ) from error
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def _listen(family: int, address: tuple[Any, ...], backlog: int) -> trio.SocketListener:
    raw = socket.socket(family, socket.SOCK_STREAM)
    try:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        raw.setblocking(False)  # noqa: FBT003 - how sockets are told
        raw.bind(address)
        raw.listen(backlog)
    except OSError:
        raw.close()
        raise
    return trio.SocketListener(trio.socket.from_stdlib_socket(raw))


class BadCertificate(Exception):
    """TLS cannot be used. The message says which file is at fault and what to do."""


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Make the context of a server from PEM files: TLS 1.2 or later."""
    for path, what in ((certificate, "certificate"), (key, "key")):
        try:
            text = path.read_bytes()
        except OSError as error:
            raise BadCertificate(f"the {what} {path} cannot be read: {error.strerror}") from error
        if b"-----BEGIN " not in text:
            raise BadCertificate(f"{path} is no {what} in PEM form; convert it with openssl")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = f"the key {key} does not belong to the certificate {certificate}"
        else:
            why = f"{certificate} with {key}: {error.reason or 'not usable'}"
        raise BadCertificate(f"{why}; give the pair that was issued together") from error
    except _Encrypted:
        raise BadCertificate(f"the key {key} has a password; give one without") from None
    return context


class _Encrypted(Exception):
    """OpenSSL asked for a password: it would ask on the terminal otherwise."""


def _no_password() -> str:
    raise _Encrypted
