"""The head of a request: found in the bytes that came, and read more strictly than h11 does.

Two programs that disagree about where a request ends let a third one hide a request between them
(request smuggling). h11 forgives what RFC 9112 lets a server forgive: a line that ends with a bare
LF, folded lines, a length beside a transfer coding. A proxy in front may read those otherwise, so
nothing of that passes here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

import h11

from perdure.runtime.port.refusal import PortRefused

if TYPE_CHECKING:
    from perdure.runtime.kernel.budget import Account
    from perdure.runtime.port.limits import PortLimits

END: Final = b"\r\n\r\n"
# A bare LF, a bare CR, NUL, or a folded line. A CR may be the last byte of what came so far.
_UNSOUND: Final = re.compile(rb"(?<!\r)\n|\r[^\n]|\x00|\r\n[ \t]")
_ABSOLUTE: Final = re.compile(rb"https?://([^/?]*)(.*)", re.IGNORECASE | re.DOTALL)
_BAD: Final = "BAD_REQUEST"
_NO_HTTP: Final = "that is not HTTP/1.1 as RFC 9112 has it; correct the client or its proxy"


@dataclass(slots=True, eq=False)
class Head:
    """A request without its body. ``protocol`` writes its response, and is used for no other."""

    protocol: h11.Connection
    size: int  # bytes that it came in
    method: str
    version: str
    target: bytes  # without scheme and authority
    path: str
    raw_path: bytes
    query: bytes
    headers: list[tuple[bytes, bytes]]  # names in lower case
    named: dict[bytes, bytes]  # the same; of several of one name the last

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits to be told before it sends the body."""
        return self.version == "1.1" and b"100-continue" in _words(self.named.get(b"expect"))

    @property
    def wants_websocket(self) -> bool:
        """Whether this asks to go on as WebSocket."""
        named = self.named
        return (
            b"upgrade" in named
            and self.method == "GET"
            and self.version == "1.1"
            and b"websocket" in _words(named[b"upgrade"])
            and b"upgrade" in _words(named.get(b"connection"))
        )


class HeadBuffer:
    """Bytes that no request has claimed yet: pieces of a head, or of the requests after it."""

    __slots__ = ("_data", "_held", "_limits", "_searched")

    def __init__(self, limits: PortLimits, account: Account) -> None:
        """Begin with nothing."""
        self._limits = limits
        self._held = account.hold()
        self._data = bytearray()
        self._searched = 0

    def __len__(self) -> int:
        return len(self._data)

    def add(self, data: bytes | bytearray) -> None:
        """Put bytes at the end; more than the account has room for are OVERLOADED."""
        self._held.grow(len(data))
        self._data += data

    def take_all(self) -> bytes:
        """Give all bytes to whoever owns the connection now: a body, an upgrade."""
        data = bytes(self._data)
        self.clear()
        return data

    def clear(self) -> None:
        """Forget all bytes."""
        self._data.clear()
        self._held.release()
        self._searched = 0

    def next_head(self) -> Head | None:
        """Give the next head when it is complete. What cannot become one is ``Refused`` at once."""
        data, limits = self._data, self._limits
        end = data.find(END, max(0, self._searched - len(END)))
        if end < 0:
            # What has been looked at is sound, up to a CR at the end.
            if _UNSOUND.search(data, max(0, self._searched - 2)) or (data and data[0] <= ord(" ")):
                raise PortRefused(_BAD, _NO_HTTP)
            if len(data) > limits.head_bytes:
                raise _too_large(limits)
            self._searched = len(data)
            return None
        raw = bytes(data[: end + len(END)])
        del data[: end + len(END)]
        self._held.resize(len(data))
        self._searched = 0
        if len(raw) > limits.head_bytes or raw.count(b"\r\n") > limits.head_fields + 2:
            raise _too_large(limits)
        if _UNSOUND.search(raw):
            raise PortRefused(_BAD, _NO_HTTP)
        return _parsed(raw)


def _parsed(raw: bytes) -> Head:
    protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=len(raw))
    protocol.receive_data(raw)
    try:
        request = protocol.next_event()
    except h11.RemoteProtocolError as error:
        raise PortRefused(_BAD, _NO_HTTP) from error
    if type(request) is not h11.Request:
        raise PortRefused(_BAD, _NO_HTTP)
    headers = list(request.headers)
    named = dict(headers)
    _check_framing(request.http_version, named)
    if len(named) != len(headers) and sum(name == b"origin" for name, _ in headers) > 1:
        raise PortRefused(_BAD, "send one Origin header at most")
    if request.http_version == b"1.1" and b"expect" in named:
        _check_expectations(headers)
    target = _own_target(request.method, request.target, named)
    raw_path, _, query = target.partition(b"?")
    return Head(
        protocol=protocol,
        size=len(raw),
        method=request.method.decode("ascii"),
        version=request.http_version.decode("ascii"),
        target=target,
        path=_decoded(raw_path),
        raw_path=raw_path,
        query=query,
        headers=headers,
        named=named,
    )


def _check_framing(version: bytes, named: dict[bytes, bytes]) -> None:
    """Refuse what two readers could measure in two ways."""
    if version not in (b"1.0", b"1.1"):
        raise PortRefused(_BAD, "speak HTTP/1.1")
    if b"transfer-encoding" in named:
        if b"content-length" in named:
            raise PortRefused(_BAD, "send either Content-Length or Transfer-Encoding, not both")
        if version == b"1.0":
            raise PortRefused(_BAD, "HTTP/1.0 has no Transfer-Encoding; send Content-Length")


def _check_expectations(headers: list[tuple[bytes, bytes]]) -> None:
    """Refuse what a client waits for and will not get."""
    expected = {word for name, value in headers if name == b"expect" for word in _words(value)}
    if not expected <= {b"100-continue", b""}:
        raise PortRefused("EXPECTATION_FAILED", "send Expect: 100-continue, or no Expect at all")


def _own_target(method: bytes, target: bytes, named: dict[bytes, bytes]) -> bytes:
    """Give the target in its usual form: a path and a query."""
    if target[:1] == b"/" and method != b"CONNECT":
        if b"#" in target:
            raise PortRefused(
                _BAD, "leave the fragment out of the address: it is not sent to servers"
            )
        return target
    if target == b"*" and method == b"OPTIONS":
        return target
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None or b"#" in target or method == b"CONNECT":
        raise PortRefused(_BAD, "ask for a path that begins with /; this server is no proxy")
    if absolute[1].lower() != named.get(b"host", b"").lower():
        raise PortRefused(_BAD, "the address and the Host header name different servers; send one")
    rest = absolute[2]
    return rest if rest[:1] == b"/" else b"/" + rest


def _decoded(raw_path: bytes) -> str:
    if b"%" not in raw_path:
        return raw_path.decode("ascii")
    path = unquote_to_bytes(raw_path)
    try:
        text = path.decode("utf-8")
    except UnicodeDecodeError:
        raise PortRefused(_BAD, "write the path as percent-encoded UTF-8") from None
    if "\0" in text:
        raise PortRefused(_BAD, "leave %00 out of the path")
    return text


def _words(value: bytes | None) -> list[bytes]:
    return [] if value is None else [word.strip() for word in value.lower().split(b",")]


def _too_large(limits: PortLimits) -> PortRefused:
    return PortRefused(
        "HEAD_TOO_LARGE",
        "send fewer or shorter headers, or a shorter address",
        bytes=limits.head_bytes,
        fields=limits.head_fields,
    )
