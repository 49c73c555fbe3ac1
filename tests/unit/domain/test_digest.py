"""A command's fingerprint changes with its content and with nothing else."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orbit.domain.digest import FieldValue, command_digest, receipt_id

values = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.binary(max_size=8)
commands = st.dictionaries(st.text(max_size=4), values, max_size=5)


def content(fields: dict[str, FieldValue]) -> dict[str, tuple[type, FieldValue]]:
    """Return what counts: present fields, with 1 and True apart."""
    return {name: (type(value), value) for name, value in fields.items() if value is not None}


@given(commands, commands)
def test_two_commands_share_a_digest_only_if_their_content_is_the_same(
    one: dict[str, FieldValue], other: dict[str, FieldValue]
) -> None:
    same = command_digest("c", list(one.items())) == command_digest("c", list(other.items()))
    assert same == (content(one) == content(other))


@given(commands, st.randoms())
def test_neither_the_order_nor_an_omitted_field_counts(
    fields: dict[str, FieldValue], order: random.Random
) -> None:
    assume("new" not in fields)
    expected = command_digest("c", list(fields.items()))
    shuffled: list[tuple[str, FieldValue]] = [*fields.items(), ("new", None)]
    order.shuffle(shuffled)
    assert command_digest("c", shuffled) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([("a", "1")], [("a", 1)]),
        ([("a", True)], [("a", 1)]),
        ([("a", False)], [("a", None)]),
        ([("a", "")], []),
        ([("a", b"x")], [("a", "x")]),
        ([("a", "bc")], [("ab", "c")]),
        ([("payload", b"[1, 2]")], [("payload", b"[1,2]")]),
        ([("payload", b"1.10")], [("payload", b"1.1")]),
    ],
)
def test_near_misses_differ(one: list[tuple[str, FieldValue]], other: list[tuple[str, FieldValue]]) -> None:
    assert command_digest("c", one) != command_digest("c", other)


def test_the_command_name_counts() -> None:
    assert command_digest("tasks.cancel", []) != command_digest("tasks.review", [])


def test_the_encoding_is_frozen() -> None:
    """A changed encoding would turn every stored receipt into a conflict."""
    digest = command_digest(
        "tasks.submit", [("payload", b"{}"), ("priority", 3), ("paused", True), ("x", "é")]
    )
    assert digest.hex() == "71070b0a804ba9ea61799dfa79ea914295e9c0d81bba8e7b6f4a75d6a1f7533d"
    assert (
        receipt_id(b"a" * 16, b"n" * 16, "tasks:submit", "k").hex()
        == "498d20a7a667b043a14da96e03368c7a6b0f0de66953844043b509c8943bfa6d"
    )


def test_a_receipt_is_scoped_to_application_namespace_and_action() -> None:
    identities = {
        receipt_id(b"a" * 16, b"n" * 16, "x", "yk"),
        receipt_id(b"a" * 16, b"n" * 16, "xy", "k"),
        receipt_id(b"b" * 16, b"n" * 16, "x", "yk"),
        receipt_id(b"a" * 16, b"m" * 16, "x", "yk"),
        receipt_id(b"a" * 16, b"n" * 16, "x", "yK"),
    }
    assert len(identities) == 5
