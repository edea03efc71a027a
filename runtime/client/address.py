"""Where a server is reached: at the address that PERDURE_URL names, or as it announces itself."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self
from urllib.parse import urlsplit

from perdure.runtime.kernel.announcement import find_server
from perdure.runtime.kernel.data_directory import DataDir
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.variables import TRUSTED, URL

if TYPE_CHECKING:
    import ssl


class NotAnAddress(Exception):
    """A text is no address of a server; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A server's address."""

    url: str
    host: str
    port: int
    target: str  # of its WebSocket
    is_secure: bool
    certificate: str | None = None  # trusted whatever its host name; None trusts the system's

    @classmethod
    def of(cls, url: str, certificate: str | None = None) -> Self:
        """Read an address such as http://127.0.0.1:7373, or raise NotAnAddress."""
        if "@" in url or "?" in url or "#" in url:  # maybe with a password, which is not shown
            raise NotAnAddress("the address may have a host, a port and a path, and nothing else")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
            (host or "").encode("idna")
        except ValueError as error:
            raise NotAnAddress(f"{url!r} is no address: {error}") from error
        if parts.scheme not in {"http", "https"} or not host:
            raise NotAnAddress(f"{url!r} is no address of a server")
        if not url.isascii() or not url.isprintable() or " " in url or port == 0:
            raise NotAnAddress(f"{url!r} has a port or a character that no address has")
        is_secure = parts.scheme == "https"
        return cls(
            url=url.rstrip("/"),
            host=host,
            port=port or (443 if is_secure else 80),
            target=parts.path.rstrip("/") + "/ws",
            is_secure=is_secure,
            certificate=certificate,
        )

    @property
    def authority(self) -> str:
        """The host and the port, as HTTP names them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def tls(self) -> ssl.SSLContext | None:
        """Give what a connection is secured with, if it is."""
        if not self.is_secure:
            return None
        import ssl  # noqa: PLC0415 - few need it

        context = ssl.create_default_context(cafile=self.certificate)
        context.check_hostname = self.certificate is None
        named = os.environ.get(TRUSTED)
        if named and self.certificate is None:
            try:
                context.load_verify_locations(named)  # or a file that is missing goes unnoticed
            except OSError as error:
                message = f"{TRUSTED} names {named}, which holds no certificates ({error})"
                raise OperationError("VALIDATION_ERROR", message) from error
        return context


class Whereabouts(Protocol):
    """Where a server is; after a restart it may be elsewhere."""

    @property
    def lost(self) -> str:
        """What to say when it is not found any more."""

    @property
    def remedy(self) -> str:
        """What its user can do then."""

    def find(self) -> Address | None:
        """Look for the server now."""


@dataclass(frozen=True, slots=True)
class Named:
    """A server that is always at one address."""

    address: Address
    remedy = f"start it there, or check {URL}"

    @property
    def lost(self) -> str:
        """What to say when it does not answer."""
        return f"the server at {self.address.url} does not answer"

    def find(self) -> Address:
        """Give the address."""
        return self.address


@dataclass(frozen=True, slots=True)
class Announced:
    """The server that holds the log of a data directory."""

    data: DataDir
    lost = "no process is at work on this log any more"
    remedy = "start one: perdure serve"

    def find(self) -> Address | None:
        """Read where the server announces itself, if one holds the log."""
        server = find_server(self.data)
        return None if server is None else Address.of(server.url, server.certificate)
