"""Times and 64-bit numbers on the wire."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbit.domain.errors import InvalidArgument, InvariantViolation
from orbit.domain.limits import UINT64_MAX
from orbit.domain.wire import format_time, parse_time, parse_uint64, uint64_text


@given(st.datetimes(min_value=datetime(1000, 1, 1)))
def test_a_time_reads_back_and_always_has_six_digits(moment: datetime) -> None:
    text = format_time(moment)
    assert len(text) == len("2026-01-31T08:00:00.000000Z")
    assert parse_time(text, "available_at") == moment


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31T08:00:00Z", datetime(2026, 1, 31, 8)),
        ("2026-01-31T08:00:00.5Z", datetime(2026, 1, 31, 8, 0, 0, 500_000)),
        ("2024-02-29T23:59:59.000001Z", datetime(2024, 2, 29, 23, 59, 59, 1)),
    ],
)
def test_short_fractions_are_padded(text: str, moment: datetime) -> None:
    assert parse_time(text, "available_at") == moment


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-01-31",
        "2026-01-31T08:00:00",
        "2026-01-31T08:00:00+00:00",
        "2026-01-31t08:00:00Z",
        "2026-01-31T08:00:00z",
        "2026-01-31 08:00:00Z",
        "2026-01-31T08:00:00.Z",
        "2026-01-31T08:00:00.1234567Z",
        "2026-01-31T08:00Z",
        "2026-02-30T08:00:00Z",
        "2025-02-29T08:00:00Z",
        "2026-13-01T08:00:00Z",
        "2026-01-31T24:00:00Z",
        "2026-01-31T08:00:60Z",
        "0000-01-01T00:00:00Z",
        "0999-12-31T00:00:00Z",
        "2026-01-31T08:00:00Z\n",
        "２026-01-31T08:00:00Z",
    ],
)
def test_any_other_spelling_of_a_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^INVALID_ARGUMENT: available_at: "):
        parse_time(text, "available_at")


def test_a_zoned_time_inside_the_server_is_our_bug() -> None:
    with pytest.raises(InvariantViolation):
        format_time(datetime(2026, 1, 1, tzinfo=UTC))


@given(st.integers(0, UINT64_MAX))
def test_a_uint64_reads_back(value: int) -> None:
    assert parse_uint64(uint64_text(value), "expected_revision") == value


@pytest.mark.parametrize(
    "text",
    ["", "-1", "+1", "01", "00", " 1", "1 ", "1\n", "1.0", "1e3", "0x1", "１", "9" * 5_000, str(2**64)],
)
def test_any_other_spelling_of_a_uint64_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_uint64(text, "expected_revision")


def test_the_minimum_is_part_of_the_rule() -> None:
    assert parse_uint64("1", "expected_revision", minimum=1) == 1
    with pytest.raises(InvalidArgument):
        parse_uint64("0", "expected_revision", minimum=1)


@pytest.mark.parametrize("value", [-1, 2**64])
def test_a_number_outside_sixty_four_bits_is_never_written(value: int) -> None:
    with pytest.raises(InvariantViolation):
        uint64_text(value)
