"""Query parameters."""

from __future__ import annotations

import pytest

from orbit.api.query import page_limit, parse_query
from orbit.domain.errors import InvalidArgument


def test_values_are_decoded_strictly() -> None:
    found = parse_query(b"a=1&b=%20k+%2B&c=", {"a", "b", "c"})
    assert found == {"a": "1", "b": " k +", "c": ""}
    assert parse_query(b"", {"a"}) == {}


@pytest.mark.parametrize(
    ("query", "field"),
    [(b"x=1", "x"), (b"a=1&a=1", "a"), (b"a=%ff", "a"), (b"%ff=1", "query"), (b"a=1&", "query")],
)
def test_nothing_is_ignored(query: bytes, field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_query(query, {"a"})
    assert refused.value.field == field


@pytest.mark.parametrize("text", ["0", "101", "-1", "1.0", "", "\u0661", "99999999999999999999"])
def test_limits_out_of_bounds(text: str) -> None:
    with pytest.raises(InvalidArgument):
        page_limit({"limit": text})


def test_limits_within_bounds() -> None:
    assert [page_limit({}), page_limit({"limit": "1"}), page_limit({"limit": "100"})] == [20, 1, 100]
