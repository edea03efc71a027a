from __future__ import annotations

from hashlib import sha256

import pytest

from perdure.actors.claim import (
    KEYED_SCHEME,
    SCHEME,
    ClaimMade,
    ObjectClaimed,
    Subject,
    claim_stream,
    is_over,
    keyed_hash,
    request_hash,
)
from perdure.actors.lineage import lineage_stream

CLAIM = ClaimMade(run_id="r1", request_hash="h", scheme=SCHEME, window=100, at=1000)


@pytest.mark.parametrize(
    ("now", "has_ended", "over"),
    [
        (1099, True, False),
        (1100, True, True),
        (1101, True, True),
        (1099, False, False),
        (9999, False, False),
    ],
)
def test_a_claim_lasts_for_its_window_and_as_long_as_its_object(
    now: int, *, has_ended: bool, over: bool
) -> None:
    """A key is free again when both are over, whatever it stands for."""
    named = ObjectClaimed(
        kind="session", object_id="s1", request_hash="h", scheme=SCHEME, window=100, at=1000
    )
    assert is_over(CLAIM, now, has_ended=has_ended) == over
    assert is_over(named, now, has_ended=has_ended) == over


def test_a_claim_without_a_window_holds_for_good() -> None:
    """A key may stand for an object for its whole life, and after it."""
    named = ObjectClaimed(
        kind="session", object_id="s1", request_hash="h", scheme=SCHEME, window=None, at=0
    )
    assert not is_over(named, 1 << 62, has_ended=True)


def test_a_claim_says_what_it_stands_for() -> None:
    """Also one that was stored when keys could only stand for runs."""
    assert CLAIM.subject == Subject("run", "r1")
    named = ObjectClaimed(
        kind="session", object_id="s1", request_hash="h", scheme=SCHEME, window=1, at=0
    )
    assert named.subject == Subject("session", "s1")


def test_a_claim_is_found_by_whose_it_is_for_what_and_its_key() -> None:
    """Each of the four names another stream, and a key of any length or script fits."""
    key = "k\u00e9y" * 100
    hashed = sha256(key.encode()).hexdigest()
    assert claim_stream("t", "p", "run.create", key) == f"claim/t/p/run.create/{hashed}"


def test_a_lineage_is_found_by_its_first_run() -> None:
    """All attempts of one piece of work are counted in one stream."""
    assert lineage_stream("r1") == "lineage/r1"


def test_equal_requests_have_equal_hashes_whatever_their_order() -> None:
    """The order of names means nothing, at any depth."""
    one = {"entry": "e", "args": {"a": 1, "b": [{"x": 1, "y": 2}]}}
    other = {"args": {"b": [{"y": 2, "x": 1}], "a": 1}, "entry": "e"}
    assert request_hash(one) == request_hash(other)


@pytest.mark.parametrize(
    "other",
    [
        {"args": {"a": 2, "b": [1, 2]}},
        {"args": {"a": 1, "b": [2, 1]}},
        {"args": {"a": 1, "b": [1, 2]}, "more": None},
        {"args": {"a": 1, "c": [1, 2]}},
    ],
    ids=["value", "order of a list", "more", "name"],
)
def test_different_requests_have_different_hashes(other: dict[str, object]) -> None:
    """Values, names and the order of a list make a difference."""
    assert request_hash(other) != request_hash({"args": {"a": 1, "b": [1, 2]}})


def test_a_hash_means_the_same_in_every_release() -> None:
    """It is stored: how it is made has a name, and another way needs another name."""
    known = "89c10776e1bf45031b2b8806b01ceac0f407cd917413f8664e1a961711f069e1"
    assert {SCHEME: request_hash({"b": [1, "x"], "a": None})} == {"sha256-cbor-1": known}


def test_keys_of_different_people_never_meet() -> None:
    """A slash in a name is not the one between names."""
    hashed = sha256(b"k").hexdigest()
    assert claim_stream("a/b", "c", "o", "k") == f"claim/a%2Fb/c/o/{hashed}"
    assert claim_stream("a", "b/c", "o", "k") == f"claim/a/b%2Fc/o/{hashed}"


def test_equal_secrets_have_equal_hashes_under_one_key() -> None:
    """Whatever the order of their parts; another key or another value makes another hash."""
    same = keyed_hash(b"key", {"a": 1, "b": ["x"]})
    assert keyed_hash(b"key", {"b": ["x"], "a": 1}) == same
    others = [
        keyed_hash(b"other", {"a": 1, "b": ["x"]}),
        keyed_hash(b"key", {"a": 1, "b": ["y"]}),
        keyed_hash(b"key", None),
        request_hash({"a": 1, "b": ["x"]}),
    ]
    assert len({same, *others}) == 5


def test_a_hash_of_a_secret_means_the_same_in_every_release() -> None:
    """It is stored inside that of the request, under another name than one without secrets."""
    known = "c2ba0bfca58167b5363bd20198060fabec4840403dc3fa91ec1e647d24296893"
    assert {KEYED_SCHEME: keyed_hash(b"key", ["x", 1])} == {"sha256-cbor-hmac-1": known}
