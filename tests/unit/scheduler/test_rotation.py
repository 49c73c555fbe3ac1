"""Turns are fair."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbit.scheduler.rotation import RoundRobin, rotated, shares


def test_a_busy_one_goes_behind_those_who_wait() -> None:
    """C39: whoever asks again at once still comes after everybody who asked before."""
    line: RoundRobin[str] = RoundRobin()
    for name in ("busy", "quiet", "other"):
        line.add(name)
    served = []
    for _ in range(4):
        served.append(line.take())
        if served[-1] == "busy":
            line.add("busy")
    assert served == ["busy", "quiet", "other", "busy"]


def test_a_second_wish_adds_no_turn() -> None:
    """However often an application is woken, it gets one turn, and one wake-up."""
    wakes: list[None] = []
    line: RoundRobin[str] = RoundRobin(lambda: wakes.append(None))
    for _ in range(3):
        line.add("a")
    assert (len(line), len(wakes)) == (1, 1)
    assert line.take() == "a"
    assert line.take() is None


@given(st.lists(st.integers(), unique=True, max_size=20), st.integers(0, 100))
def test_each_leads_once_in_a_round(items: list[int], turn: int) -> None:
    """A rotation keeps everybody and lets each lead once."""
    turns = [rotated(items, turn + step) for step in range(len(items))]
    assert all(sorted(order) == sorted(items) for order in turns)
    assert sorted(order[0] for order in turns) == sorted(items)


@given(st.integers(0, 1_000), st.integers(1, 64))
def test_shares_use_everything_and_differ_by_one(room: int, takers: int) -> None:
    """Nothing is lost in the division."""
    found = shares(room, takers)
    assert sum(found) == room
    assert len(found) == takers
    assert max(found) - min(found) <= 1
