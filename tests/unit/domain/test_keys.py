"""Names and keys: what is legal, and that legal keys stay apart byte for byte."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbit.domain import keys
from orbit.domain.errors import InvalidArgument

# Distinct keys that one collation or another would take for equal.
LOOKALIKES = [
    "k",
    "K",
    "k\u0301",
    "\u1e31",
    "ｋ",
    "é",
    "e\u0301",
    "k k",
    "k\u00a0k",
    "ß",
    "ss",
    "\u200bk",
    "k\u200b",
]


@pytest.mark.parametrize(
    "key", [*LOOKALIKES, "\U0001f600" * 191, "a" * 191, "object/42", "\ufeffk", "\u180e"]
)
def test_a_legal_concurrency_key_is_kept_as_it_is(key: str) -> None:
    assert keys.check_concurrency_key(key) == key


def test_an_empty_key_means_none() -> None:
    assert keys.check_concurrency_key("") is None
    assert keys.check_business_key("") is None
    assert keys.key_digest(None) == keys.key_digest("") == keys.NO_KEY == bytes(32)


@pytest.mark.parametrize(
    "key",
    [
        "k ",
        " k",
        " ",
        "\tk",
        "k\n",
        "\u3000k",
        "k\u3000",
        "k\u2028",
        "\u00a0k",
        "k\x00k",
        "k\x1fk",
        "k\x7fk",
        "k\x85k",
        "a" * 192,
        "\U0001f600" * 192,
        "k\ud800",
    ],
)
def test_an_illegal_concurrency_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        keys.check_concurrency_key(key)
    assert caught.value.field == "concurrency_key"


def test_lookalike_keys_never_share_a_digest() -> None:
    digests = [keys.key_digest(key) for key in [*LOOKALIKES, "k ", " k"]]
    assert all(a != b for a, b in combinations(digests, 2))


@given(st.text(min_size=1, max_size=191), st.text(min_size=1, max_size=191))
def test_business_keys_are_equal_only_as_bytes(one: str, other: str) -> None:
    assert keys.check_business_key(one) == one
    assert (keys.key_digest(one) == keys.key_digest(other)) == (one.encode() == other.encode())


@pytest.mark.parametrize("key", ["a" * 192, "\udfff"])
def test_an_illegal_business_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidArgument, match="business_key"):
        keys.check_business_key(key)


@pytest.mark.parametrize("name", ["a", "0", "images", "A.b_c:d-e", "x" * 128])
def test_a_legal_name(name: str) -> None:
    assert keys.check_name(name, "name") == name


@pytest.mark.parametrize(
    "name", ["", "x" * 129, "_a", "-a", ".a", ":a", "a b", "a/b", "é", "a\n", "a\x00", "١"]
)
def test_an_illegal_name(name: str) -> None:
    with pytest.raises(InvalidArgument, match="name"):
        keys.check_name(name, "name")


def test_versions_are_shorter_than_handlers() -> None:
    assert keys.check_handler("h" * 128) == "h" * 128
    assert keys.check_version("v" * 64) == "v" * 64
    with pytest.raises(InvalidArgument, match="payload_version"):
        keys.check_version("v" * 65, "payload_version")


@pytest.mark.parametrize("key", ["!", "~", "a" * 191, "update-object-42:1"])
def test_a_legal_idempotency_key(key: str) -> None:
    assert keys.check_idempotency_key(key) == key


@pytest.mark.parametrize("key", ["", "a" * 192, "a b", "a\t", "a\n", "é", "\x7f"])
def test_an_illegal_idempotency_key(key: str) -> None:
    with pytest.raises(InvalidArgument, match="Idempotency-Key"):
        keys.check_idempotency_key(key)


@pytest.mark.parametrize("reason", ["", " ", "\u3000\n", "x" * 1_025])
def test_a_blank_or_long_reason_is_refused(reason: str) -> None:
    with pytest.raises(InvalidArgument, match="reason"):
        keys.check_reason(reason)


def test_a_reason_is_counted_in_characters() -> None:
    assert keys.check_reason("\U0001f600" * 1_024) == "\U0001f600" * 1_024


@pytest.mark.parametrize(("text", "limit"), [("é" * 9, 17), ("x\ud800", None)])
def test_text_that_does_not_fit_is_refused(text: str, limit: int | None) -> None:
    with pytest.raises(InvalidArgument, match="evidence"):
        keys.check_text_storable(text, "evidence", max_bytes=limit)


@given(st.text(st.characters(codec=None), max_size=40), st.integers(0, 60))
def test_a_cleaned_text_can_always_be_stored(text: str, limit: int) -> None:
    cleaned = keys.clean_text(text, limit)
    assert len(cleaned.encode()) <= limit
    fitting = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    assert fitting.startswith(cleaned)
    # Nothing is thrown away that would still have fitted.
    assert cleaned == fitting or len((cleaned + fitting[len(cleaned)]).encode()) > limit


def test_an_error_code_is_never_empty() -> None:
    assert keys.clean_error_code("  ") == "ERROR"
    assert keys.clean_error_code("x" * 70) == "x" * 64


def test_an_error_code_is_ascii_as_its_column() -> None:
    assert keys.clean_error_code("\ud800\x00é\U0001f600 A-1") == "____ A-1"
    assert keys.clean_error_code("\U0001f600" * 70) == "_" * 64


def test_digests_are_those_of_the_schema() -> None:
    handler = keys.handler_digest("object.update", "v1")
    assert handler == hashlib.sha256(b"object.update\x00v1").digest()[:16]
    key = keys.key_digest("object/42")
    assert key == hashlib.sha256(b"object/42").digest()
    assert keys.lane_id(b"q" * 16, handler, key) == hashlib.sha256(b"q" * 16 + handler + key).digest()[:16]


@pytest.mark.parametrize("check", [keys.check_concurrency_key, keys.check_business_key, keys.check_reason])
def test_a_check_names_the_field_it_was_told(check: Callable[[str, str], str | None]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check("x" * 2_000, "items[3].key")
    assert caught.value.details == {"field": "items[3].key"}
