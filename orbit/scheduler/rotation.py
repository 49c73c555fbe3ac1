"""Fair turns in memory: they decide who is served next, never who may execute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class RoundRobin(Generic[T]):
    """Those who want a turn, each at most once, in the order in which they asked: nobody is overtaken twice."""

    __slots__ = ("_line", "_wake")

    def __init__(self, wake: Callable[[], None] = lambda: None) -> None:
        self._line: dict[T, None] = {}
        self._wake = wake

    def __len__(self) -> int:
        return len(self._line)

    def add(self, item: T) -> None:
        """Let `item` have a turn; a second wish before that turn adds nothing."""
        if item not in self._line:
            self._line[item] = None
            self._wake()

    def take(self) -> T | None:
        """Return whose turn it is, None when nobody asks."""
        for item in self._line:
            del self._line[item]
            return item
        return None

    def discard(self, item: T) -> None:
        self._line.pop(item, None)


def rotated(items: Sequence[T], turn: int) -> tuple[T, ...]:
    """Return the items so that each of them leads once in as many turns as there are items."""
    if not items:
        return ()
    start = turn % len(items)
    return (*items[start:], *items[:start])


def shares(room: int, takers: int) -> list[int]:
    """Split `room` into `takers` shares that differ by at most one, the larger ones first."""
    share, rest = divmod(room, takers)
    return [share + (position < rest) for position in range(takers)]
