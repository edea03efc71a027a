"""Who may speak to the port: Host and Origin, checked before anything else is looked at.

A page of a stranger can make a browser send requests here in two ways. By DNS rebinding: its own
name suddenly points to this machine; then Host is that name, and we know ours. From another
origin: then a browser says so in Origin, on WebSocket handshakes as well, which no CORS rule
holds back. So Host must be known, and Origin, where there is one, must be this very address or
be listed.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from perdure.runtime.port.refusal import PortRefusal

LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "[::1]")
ANY: Final = "*"
_PORTS: Final = {b"http": b"80", b"https": b"443"}
_AUTHORITY: Final = re.compile(rb"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?", re.IGNORECASE)
_ORIGIN: Final = re.compile(rb"([a-z][a-z0-9+.-]*)://([^/]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Allowed hosts and origins.

    A host is a name (any port) or ``name:port``; ``*`` allows all, for a port behind something
    that checks. Origins are written as browsers send them: ``https://console.example``.
    """

    hosts: Collection[str] = LOCAL_HOSTS
    origins: Collection[str] = ()
    _hosts: frozenset[bytes] = field(init=False, repr=False)
    _origins: frozenset[bytes] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        hosts = frozenset(host.lower().encode() for host in self.hosts)
        origins = frozenset(origin.lower().rstrip("/").encode() for origin in self.origins)
        object.__setattr__(self, "_hosts", hosts)
        object.__setattr__(self, "_origins", origins)

    def refuses(
        self, host: bytes | None, origin: bytes | None = None, *, scheme: bytes = b"http"
    ) -> PortRefusal | None:
        """Say why a request with these headers stops here; None if it may pass."""
        named = None if host is None else _AUTHORITY.fullmatch(host)
        if named is None:
            return PortRefusal("BAD_REQUEST", "send one Host header that names this server")
        name, port = named[1].lower(), named[2]
        if not self._allows(name, port):
            return PortRefusal(
                "HOST_REFUSED",
                "this server does not answer to that Host; use an address that it was given,"
                " or add the name to its allowed hosts",
            )
        if origin is None or self._knows(origin, scheme, name, port):
            return None
        return PortRefusal(
            "ORIGIN_REFUSED",
            "pages of that origin may not use this server; add it to the allowed origins",
        )

    def _allows(self, name: bytes, port: bytes | None) -> bool:
        hosts = self._hosts
        return name in hosts or (
            (port is not None and b"%s:%s" % (name, port) in hosts) or ANY.encode() in hosts
        )

    def _knows(self, origin: bytes, scheme: bytes, name: bytes, port: bytes | None) -> bool:
        if origin.lower() in self._origins:
            return True
        found = _ORIGIN.fullmatch(origin)
        own = found and found[1].lower() == scheme and _AUTHORITY.fullmatch(found[2])
        if not own:
            return False
        usual = _PORTS[scheme]
        return own[1].lower() == name and (own[2] or usual) == (port or usual)
