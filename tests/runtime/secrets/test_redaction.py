from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.runtime.execution.run_secrets import RunRedactor, Scanner
from perdure.runtime.plugins.contract import PluginError
from perdure.runtime.secrets.redaction import MAX_DEPTH, REDACTED, Redactor

VALUE = 'cor/rect "horse"\n+ü?'


def knowing(*values: Any, names: tuple[str, ...] = ()) -> RunRedactor:
    """A redactor that knows some values."""
    redactor = RunRedactor(names)
    redactor.register(*values)
    return redactor


@pytest.mark.parametrize(
    "form",
    [
        VALUE,
        json.dumps(VALUE)[1:-1],
        json.dumps(VALUE, ensure_ascii=False)[1:-1],
        json.dumps(VALUE)[1:-1].replace("/", "\\/"),
        repr(VALUE)[1:-1],
        quote(VALUE),
        quote(VALUE, safe=""),
        re.sub("%..", lambda escape: escape[0].lower(), quote(VALUE, safe="")),
        quote_plus(VALUE),
        b64encode(VALUE.encode()).decode(),
        b64encode(VALUE.encode()).decode().rstrip("="),
        urlsafe_b64encode(VALUE.encode()).decode(),
    ],
)
def test_a_value_is_found_in_every_usual_form(form: str) -> None:
    """As it is, escaped in JSON or Python, in an address, in base64."""
    redactor = knowing(VALUE)
    assert redactor.text(f"before {form} after") == f"before {REDACTED} after"
    assert redactor.finds({"a": [f"x{form}x"]})
    assert redactor.finds(f"x{form}x".encode())


@given(
    st.binary(max_size=5), st.text("abcdefgh/+?", min_size=8, max_size=20), st.binary(max_size=5)
)
def test_base64_of_something_longer_does_not_hide_a_value(
    before: bytes, value: str, after: bytes
) -> None:
    """As in an Authorization header: what is left says at most a character at each end."""
    encoded = b64encode(before + value.encode() + after).decode()
    left = knowing(value).text(encoded)
    assert REDACTED in left
    assert len(encoded) - len(left.replace(REDACTED, "")) >= len(value) * 8 // 6 - 2


@given(st.text(min_size=4), st.text(), st.text())
def test_a_registered_value_never_gets_through(value: str, before: str, after: str) -> None:
    """Whatever it is and whatever stands around it; in texts, keys and values alike."""
    redactor = knowing(value)
    told = redactor.value({"m": [before + value + after], before + value: 1})
    if value.strip(REDACTED):  # a value that is part of the word itself is no secret
        assert value not in "".join(told["m"]).replace(REDACTED, "\0")
    assert redactor.finds([before + value + after])


def test_short_values_are_left_alone() -> None:
    """They would be found everywhere; what stands under their name is redacted all the same."""
    redactor = knowing("abc", names=("pin",))
    assert redactor.text("abcabc") == "abcabc"
    assert redactor.value({"pin": "abc", "Pin": 1}) == {"pin": REDACTED, "Pin": REDACTED}


@pytest.mark.parametrize(
    "key",
    ["password", "PASSWORD", "apiKey", "api-key", "X-Api-Key", "Authorization", "clientSecret"],
)
def test_telling_keys_hide_what_stands_under_them(key: str) -> None:
    """However they are written."""
    told = Redactor().value({"headers": {key: "x", "other": "x"}})
    assert told == {"headers": {key: REDACTED, "other": "x"}}


def test_a_word_inside_a_key_tells_nothing() -> None:
    """max_tokens is a number, and nothing is hidden where there is nothing."""
    data = {"max_tokens": 5, "tokens": [1], "token": None, "secret": False, "password": ""}
    assert Redactor().value(data) == data


def test_data_without_secrets_stays_as_it_is() -> None:
    """Of the same types, too."""
    data = {"a": (1, 2.5, None, True, b"bytes"), "b": [{"c": "text"}]}
    assert knowing("canary-value").value(data) == data
    assert isinstance(knowing("canary-value").value(data)["a"], tuple)


def test_parts_of_a_value_are_values() -> None:
    """Of a secret with parts each text is secret, and numbers in their usual form."""
    redactor = knowing({"user": "alice-smith", "codes": [123456, b"in-bytes", True]})
    assert (
        redactor.text("alice-smith 123456 in-bytes True")
        == f"{REDACTED} {REDACTED} {REDACTED} True"
    )
    assert redactor.value([123456, 7]) == [REDACTED, 7]
    assert redactor.finds(123456)
    assert not redactor.finds(7)


def test_nothing_is_too_deep_to_hide_in() -> None:
    """What is deeper than the log can hold is redacted whole; a circle ends."""
    circle: list[Any] = []
    circle.append(circle)
    assert REDACTED in repr(knowing("canary-value").value(circle))
    assert knowing("canary-value").finds(circle) is False
    deep: Any = "canary-value"
    for _ in range(MAX_DEPTH + 1):
        deep = [deep]
    assert "canary-value" not in repr(knowing("canary-value").value(deep))


def test_refusing_says_what_to_do_and_not_what_was_found() -> None:
    """The error names the thing and the way out."""
    with pytest.raises(
        PluginError, match=r'a question has .* reference {"secret": "name"}'
    ) as refusal:
        knowing("canary-value").refuse("a question", {"text": "canary-value"})
    assert refusal.value.code == "VALIDATION_ERROR"
    assert "canary-value" not in str(refusal.value)


@given(st.integers(0, 40), st.integers(1, 7), st.booleans())
def test_a_secret_in_pieces_is_found(before: int, size: int, there: bool) -> None:
    """Wherever bytes are divided."""
    data = b"x" * before + (b"canary-value" if there else b"canary-other") + b"x" * 20
    scanner = Scanner(knowing("canary-value"))
    found = False
    try:
        for start in range(0, len(data), size):
            scanner.see(memoryview(data)[start : start + size])
    except PluginError:
        found = True
    assert found == there


def test_one_learns_from_another() -> None:
    """Values and names."""
    redactor = Redactor()
    redactor.learn_from(knowing("canary-value", names=("pin",)))
    assert redactor.value(["canary-value", {"pin": 1}]) == [REDACTED, {"pin": REDACTED}]
