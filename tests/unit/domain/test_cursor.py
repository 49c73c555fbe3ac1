"""A cursor continues its own list and no other."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbit.domain import cursor
from orbit.domain.errors import InvalidArgument

KEY = b"k" * 32
values = (
    st.none()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.datetimes()
)
positions = st.lists(values, max_size=4).map(tuple)


@given(positions, st.binary(max_size=40))
def test_a_position_reads_back(position: cursor.Position, context: bytes) -> None:
    text = cursor.encode(KEY, context, position)
    assert cursor.decode(KEY, context, text) == position
    assert text.isascii()
    assert not set(text) & set("+/=&?#% ")


def refuse(key: bytes, context: bytes, text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        cursor.decode(key, context, text)
    assert caught.value.field == "cursor"


def test_another_list_or_installation_refuses_it() -> None:
    context = cursor.context(b"n" * 16, "WAITING", None)
    text = cursor.encode(KEY, context, (datetime(2026, 1, 1), b"i" * 16))
    refuse(KEY, cursor.context(b"n" * 16, "RUNNING", None), text)
    refuse(KEY, cursor.context(b"n" * 16, "WAITING", ""), text)
    refuse(b"x" * 32, context, text)


@given(st.data())
def test_no_changed_cursor_is_taken(data: st.DataObject) -> None:
    text = cursor.encode(KEY, b"c", (1, b"i" * 16))
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("ABCxyz019-_").filter(lambda c: c != text[at]))
    refuse(KEY, b"c", text[:at] + other + text[at + 1 :])
    refuse(KEY, b"c", text[:at])
    refuse(KEY, b"c", text[:at] + "=" + text[at:])


@given(st.text(max_size=60))
def test_arbitrary_text_is_refused(text: str) -> None:
    refuse(KEY, b"c", text)


def test_an_endless_text_is_refused() -> None:
    refuse(KEY, b"c", "A" * 1_000_000)


@given(
    st.lists(st.none() | st.binary(max_size=4), max_size=3),
    st.lists(st.none() | st.binary(max_size=4), max_size=3),
)
def test_contexts_are_unambiguous(one: list[bytes | None], other: list[bytes | None]) -> None:
    assert (cursor.context(*one) == cursor.context(*other)) == (one == other)
