"""Redaction: the one place where secrets are taken out of what people read.

Log lines, messages, error texts, tracebacks and exports pass here before they are written. Three
things are redacted: values that were registered, in the forms in which they usually turn up; what
stands under a telling key of a map, like ``password``; and what stands there under the name of a
secret argument. What is fed back to code (arguments, step results, questions, answers) is never
altered: a secret that is found there is refused. Pure.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

REDACTED: Final = "[redacted]"
MIN_LENGTH: Final = 4  # characters; shorter values would be found everywhere
MAX_DEPTH: Final = 40  # more than the log can hold
_MIN_PIECE: Final = 8  # characters of base64 inside a longer one, or of one line of several
# Whole words: `token` is one, `max_tokens` is not.
KEYS: Final = frozenset(
    {
        "access_key",
        "access_token",
        "api_key",
        "apikey",
        "api_token",
        "auth_token",
        "authorization",
        "bearer_token",
        "client_secret",
        "cookie",
        "credentials",
        "id_token",
        "passphrase",
        "passwd",
        "password",
        "private_key",
        "proxy_authorization",
        "refresh_token",
        "secret",
        "secret_access_key",
        "secret_key",
        "session_token",
        "set_cookie",
        "token",
        "x_api_key",
    }
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ESCAPE: Final = re.compile(r"%[0-9A-F]{2}")


class Redactor:
    """Knows the secrets of one run, or of none."""

    def __init__(self, names: Collection[str] = ()) -> None:
        """Know the names of secret arguments; values are registered as they become known."""
        self._keys = KEYS.union(map(_word, names)) if names else KEYS
        self._forms: set[str] = set()
        self._lines: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self._in_bytes: re.Pattern[bytes] | None = None
        self._in_lines: re.Pattern[str] | None = None

    @property
    def knows_values(self) -> bool:
        """Whether there is anything that can be found in a text."""
        return self._pattern is not None

    @property
    def longest(self) -> int:
        """How many bytes the longest form of a value has."""
        return max((len(form.encode("utf-8", "surrogatepass")) for form in self._forms), default=0)

    def register(self, *values: Any) -> None:
        """Learn values; of one with parts, every part, and of one with lines, every line."""
        if not values:
            return  # most runs have no secret
        texts = set(_texts(values))
        lines = {line for text in texts for line in _lines(text)}
        self._learn(
            {form for text in texts for form in _forms(text)},
            {form for line in lines for form in _forms(line)},
        )

    def learn_from(self, other: Redactor) -> None:
        """Learn what another knows."""
        self._learn(other._forms, other._lines)
        self._keys |= other._keys

    def _learn(self, forms: set[str], lines: set[str]) -> None:
        if forms <= self._forms and lines <= self._lines:
            return
        self._forms |= forms
        self._lines |= lines
        pattern = _any_of(self._forms)
        self._pattern = re.compile(pattern)
        self._in_bytes = re.compile(pattern.encode("utf-8", "surrogatepass"))
        self._in_lines = re.compile(_any_of(self._forms | self._lines))

    # What people read

    def text(self, text: str) -> str:
        """Give a text without secrets; what is no text is for others to refuse."""
        if self._in_lines is None or not isinstance(text, str):
            return text
        return self._in_lines.sub(REDACTED, text)

    def beginning(self, text: str) -> str:
        """Give the beginning of a longer text without secrets, nor the part of one at its end."""
        if self._in_lines is None:
            return text
        found = [match.end() for match in self._in_lines.finditer(text)]
        return self.text(text[: max(0, len(text) - self.longest, *found[-1:])])

    def maybe_text(self, text: str | None) -> str | None:
        """Give a text without secrets, if there is one."""
        return None if text is None else self.text(text)

    def value(self, value: Any, depth: int = 0) -> Any:  # noqa: ANN401 - any data
        """Give data without secrets: texts in it, and what stands under telling keys."""
        if isinstance(value, str):
            return self.text(value)
        kind = type(value)  # others have no place in the log
        if depth >= MAX_DEPTH and kind in {dict, list, tuple}:
            return REDACTED
        if kind is dict:
            return {
                self.text(key) if isinstance(key, str) else key: self._under(key, item, depth)
                for key, item in value.items()
            }
        if kind is list or kind is tuple:
            return kind([self.value(item, depth + 1) for item in value])
        return REDACTED if self.finds(value) else value

    def _under(self, key: Any, item: Any, depth: int) -> Any:  # noqa: ANN401 - any data
        nothing = item is None or isinstance(item, bool) or item == ""
        if isinstance(key, str) and not nothing and _word(key) in self._keys:
            return REDACTED
        return self.value(item, depth + 1)

    # What code gets back

    def finds(self, value: Any, depth: int = 0) -> bool:  # noqa: ANN401 - any data
        """Tell whether a registered value is anywhere in some data."""
        if self._pattern is None or self._in_bytes is None or isinstance(value, bool):
            return False
        if isinstance(value, str):
            return self._pattern.search(value) is not None
        if isinstance(value, bytes | bytearray):
            return self._in_bytes.search(value) is not None
        if isinstance(value, int | float):
            return str(value) in self._forms
        if isinstance(value, dict):
            inside: Iterable[Any] = (part for pair in value.items() for part in pair)
        elif isinstance(value, list | tuple):
            inside = value
        else:
            return False
        return depth < MAX_DEPTH and any(self.finds(part, depth + 1) for part in inside)


PLAIN_VALUE: Final = "a value without a secret in it"


def holds_a_secret(what: str) -> str:
    """Say that data is refused, and what to do."""
    return (
        f"{what} has the value of a secret in it, which would stay in the log for ever:"
        ' leave it out, or pass a reference {"secret": "name"} to a secret argument'
    )


def _word(key: str) -> str:
    """Give a key as words with underscores, however it is written."""
    return _CAMEL.sub("_", key).lower().replace("-", "_").replace(" ", "_")


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 - any data
    """Give the texts of a secret value that are long enough to be looked for."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
        return
    if value is None or isinstance(value, bool):
        return
    text = value.decode("utf-8", "ignore") if isinstance(value, bytes) else str(value)
    for form in {text, text.strip()}:
        if len(form) >= MIN_LENGTH:
            yield form


def _lines(text: str) -> Iterator[str]:
    """Give the lines of a value that has several, as they are printed one by one."""
    lines = [line.strip() for line in text.strip().splitlines()]
    return (line for line in lines if len(lines) > 1 and len(line) >= _MIN_PIECE)


def _any_of(forms: set[str]) -> str:
    longest_first = sorted(forms, key=lambda form: (-len(form), form))
    return "|".join(map(re.escape, longest_first))


def _forms(text: str) -> Iterator[str]:
    """Give the forms in which a value turns up: as it is, escaped, in an address, in base64."""
    yield text
    yield text.replace("\\", "\\\\")  # as programs show it that choose the quotes
    yield text.replace("'", "'\\''")  # as shells do
    for written in (json.dumps(text), json.dumps(text, ensure_ascii=False), repr(text)):
        yield written[1:-1]
    yield json.dumps(text)[1:-1].replace("/", "\\/")
    for quoted in (quote(text, safe=""), quote(text), quote_plus(text)):
        yield quoted
        yield _ESCAPE.sub(lambda escape: escape[0].lower(), quoted)
    data = text.encode("utf-8", "surrogatepass")
    for encode in (b64encode, urlsafe_b64encode):
        whole = encode(data).decode("ascii")
        yield whole
        yield whole.rstrip("=")
        for before in range(3):  # inside something longer, which may begin at any byte
            piece = _piece(encode(bytes(before) + data).decode("ascii"), before, len(data))
            if len(piece) >= _MIN_PIECE:
                yield piece


def _piece(encoded: str, before: int, length: int) -> str:
    """Give the characters of base64 that depend on nothing around the value."""
    begin = (0, 2, 3)[before]
    return encoded[begin : (before + length) * 8 // 6]
