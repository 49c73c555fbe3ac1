"""Ids are 16 bytes inside and exactly 32 lower-case hex digits on the wire."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbit.domain.errors import InvalidArgument
from orbit.domain.ids import ID_BYTES, id_text, new_id, parse_id


def test_new_ids_are_distinct_and_ordered_by_the_millisecond_of_their_making() -> None:
    before = time.time_ns() // 1_000_000
    made = [new_id() for _ in range(2_000)]
    after = time.time_ns() // 1_000_000
    assert len(set(made)) == len(made)
    assert all(len(value) == ID_BYTES for value in made)
    assert all(before <= int.from_bytes(value[:6], "big") <= after for value in made)


@given(st.binary(min_size=16, max_size=16))
def test_text_of_an_id_reads_back(value: bytes) -> None:
    assert parse_id(id_text(value), "queue_id") == value


@pytest.mark.parametrize(
    "text",
    ["", "0" * 31, "0" * 33, "A" * 32, "g" * 32, " " + "0" * 31, "0" * 32 + "\n", "０" * 32, "0x" + "0" * 30],
)
def test_any_other_spelling_is_refused_by_the_name_of_its_field(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_id(text, "queue_id")
    assert caught.value.details == {"field": "queue_id"}
    assert caught.value.message.startswith("queue_id")
