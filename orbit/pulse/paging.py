"""Keyset pages: a position in an ordered list, sealed into a cursor that belongs to that list only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from orbit.domain import cursor
from orbit.domain.errors import InvalidArgument
from orbit.store.sql.installation import select_cursor_key
from orbit.store.transaction import Tx

T = TypeVar("T")
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """One page of a list; `next_cursor` is None on the last."""

    items: tuple[T, ...]
    next_cursor: str | None


def read_position(tx: Tx, bound: bytes, text: str | None, kinds: tuple[type, ...]) -> tuple[Any, ...] | None:
    """Return the values at which a page continues, of these types; None for the first page.

    `bound` is the list's context (`cursor.context`). Raises: InvalidArgument for a cursor of another list.
    """
    if text is None:
        return None
    position = cursor.decode(select_cursor_key(tx), bound, text)
    if len(position) != len(kinds) or not all(map(isinstance, position, kinds)):
        raise InvalidArgument("is of another version", field="cursor")
    return position


def make_page(
    tx: Tx,
    bound: bytes,
    rows: Sequence[Row],
    limit: int,
    view: Callable[[Row], T],
    position: Callable[[Row], cursor.Position],
) -> Page[T]:
    """Make a page of at most `limit` rows; one row more than that says that another page follows."""
    shown = rows[:limit]
    has_more = len(rows) > limit
    following = cursor.encode(select_cursor_key(tx), bound, position(shown[-1])) if has_more else None
    return Page(items=tuple(map(view, shown)), next_cursor=following)
