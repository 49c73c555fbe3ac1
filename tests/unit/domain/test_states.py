"""The legal moves of tasks."""

from __future__ import annotations

from orbit.domain.states import TASK_MOVES, TERMINAL, UNFINISHED, TaskState


def test_every_state_has_its_row_of_moves() -> None:
    assert set(TASK_MOVES) == set(TaskState)


def test_terminal_and_unfinished_split_the_task_states() -> None:
    assert set(TaskState) == TERMINAL | UNFINISHED
    assert not TERMINAL & UNFINISHED


def test_nothing_leaves_a_terminal_state() -> None:
    assert not any(TASK_MOVES[state] for state in TERMINAL)


def test_a_result_needs_a_start_and_a_review_never_reruns() -> None:
    assert TaskState.SUCCEEDED not in TASK_MOVES[TaskState.LEASED]
    assert TaskState.RUNNING not in TASK_MOVES[TaskState.WAITING]
    assert TaskState.WAITING not in TASK_MOVES[TaskState.NEEDS_REVIEW]
    assert TaskState.NEEDS_REVIEW in TASK_MOVES[TaskState.RUNNING]
