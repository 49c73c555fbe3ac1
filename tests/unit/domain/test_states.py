"""The legal moves of tasks and attempts."""

from __future__ import annotations

from itertools import product

from orbit.domain.states import (
    ATTEMPT_MOVES,
    LIVE,
    TASK_MOVES,
    TERMINAL,
    UNFINISHED,
    AttemptState,
    TaskState,
    may_attempt_move,
    may_move,
)


def test_every_state_has_its_row_of_moves() -> None:
    assert set(TASK_MOVES) == set(TaskState)
    assert set(ATTEMPT_MOVES) == set(AttemptState)


def test_terminal_and_unfinished_split_the_task_states() -> None:
    assert set(TaskState) == TERMINAL | UNFINISHED
    assert not TERMINAL & UNFINISHED


def test_nothing_leaves_a_terminal_state() -> None:
    assert not any(may_move(a, b) for a, b in product(TERMINAL, TaskState))


def test_an_ended_attempt_stays_as_it_ended() -> None:
    assert not any(may_attempt_move(a, b) for a, b in product(set(AttemptState) - LIVE, AttemptState))


def test_a_result_needs_a_start_and_a_review_never_reruns() -> None:
    assert not may_move(TaskState.LEASED, TaskState.SUCCEEDED)
    assert not may_move(TaskState.WAITING, TaskState.RUNNING)
    assert not may_move(TaskState.NEEDS_REVIEW, TaskState.WAITING)
    assert may_move(TaskState.RUNNING, TaskState.NEEDS_REVIEW)


def test_a_started_attempt_is_never_merely_expired_or_declined() -> None:
    assert not may_attempt_move(AttemptState.RUNNING, AttemptState.EXPIRED)
    assert not may_attempt_move(AttemptState.RUNNING, AttemptState.DECLINED)
    assert not may_attempt_move(AttemptState.LEASED, AttemptState.UNKNOWN)
