"""A session's seats, answers and drain."""

from __future__ import annotations

import pytest

from orbit.domain.errors import (
    CancelRequested,
    DeadlineExceeded,
    InvariantViolation,
    OrbitError,
    QueuePaused,
    RateLimited,
    StaleAttempt,
    StateConflict,
    Unavailable,
)
from orbit.domain.states import DeclineReason, Disposition, Outcome, TaskState
from orbit.pulse.commands import (
    Assignment,
    DeclineAttempt,
    Declined,
    FinishAttempt,
    Recorded,
    StartAttempt,
    Started,
)
from orbit.pulse.session_commands import LeaseState, Renewed, Resumed
from orbit.scheduler import messages
from orbit.scheduler.session import Phase, WorkerSession
from tests.unit.scheduler.desk import assignment_for, make_session, sent

RECORDED = Recorded(task_state=TaskState.SUCCEEDED, disposition=Disposition.APPLIED)


def start(session: WorkerSession, one: Assignment) -> StartAttempt:
    return StartAttempt(
        session_id=session.session_id,
        command_id="s",
        attempt_id=one.attempt_id,
        epoch=one.epoch,
        lease_ms=30_000,
    )


def finish(session: WorkerSession, one: Assignment) -> FinishAttempt:
    return FinishAttempt(
        session_id=session.session_id,
        command_id="r",
        attempt_id=one.attempt_id,
        epoch=one.epoch,
        outcome=Outcome.SUCCEEDED,
    )


def given(session: WorkerSession, *, started: bool = False) -> Assignment:
    """Assign one attempt, started or not."""
    one = assignment_for(session)
    session.assign(one, 0.0)
    if started:
        session.expect()
        session.answer("s", start(session, one), Started(lease_ms=30_000, deadline_ms=None), 0.0)
    return one


def test_a_seat_is_taken_until_the_attempt_ends() -> None:
    """Assigned and started attempts take seats, recorded ones don't."""
    session = make_session(capacity=2)
    assert session.room() == 2
    one = given(session, started=True)
    assert session.room() == 1
    session.expect()
    session.answer("r", finish(session, one), RECORDED, 1.0)
    assert session.room() == 2
    assert [type(message) for message in sent(session)] == [
        messages.Welcome,
        messages.Started,
        messages.Recorded,
    ]


@pytest.mark.parametrize(
    ("outcome", "keeps", "reply"),
    [
        (RateLimited("full", retry_after_ms=7), True, messages.Refused),
        (QueuePaused("paused"), True, messages.Refused),
        (CancelRequested("cancelled"), False, messages.Refused),
        (DeadlineExceeded("late"), False, messages.Refused),
        (StaleAttempt("stale"), False, messages.Refused),
        (Unavailable("away"), True, messages.Error),
        (StateConflict("conflict"), True, messages.Error),
    ],
)
def test_a_refused_start_keeps_its_seat_while_it_may_be_repeated(
    outcome: OrbitError, keeps: bool, reply: type
) -> None:
    """What ends the attempt gives the seat back; the documented codes are refusals, others errors."""
    session = make_session(capacity=1)
    one = given(session)
    sent(session)
    session.expect()
    session.answer("s", start(session, one), outcome, 1.0)
    assert session.room() == (0 if keeps else 1)
    (message,) = sent(session)
    assert type(message) is reply


def test_a_bug_of_ours_tells_nothing() -> None:
    """The worker reads INTERNAL, not the cause."""
    session = make_session()
    one = given(session)
    sent(session)
    session.expect()
    session.answer("s", start(session, one), InvariantViolation("table x is broken"), 1.0)
    (message,) = sent(session)
    assert isinstance(message, messages.Error)
    assert (message.code, message.message) == ("INTERNAL", "internal error")


def test_only_what_ends_is_counted_as_freed() -> None:
    """A result frees a started attempt, a decline an unstarted one; a wrong epoch or a foreign attempt nothing."""
    session = make_session(capacity=3)
    waiting, running = given(session), given(session, started=True)
    decline = DeclineAttempt(
        session_id=session.session_id,
        command_id="d",
        attempt_id=waiting.attempt_id,
        epoch=1,
        reason=DeclineReason.BUSY,
    )
    assert session.frees(finish(session, running))
    assert not session.frees(finish(session, waiting))
    assert session.frees(decline)
    assert not session.frees(finish(session, assignment_for(session)))
    assert not session.frees(finish(session, assignment_for(session, attempt_id=running.attempt_id, epoch=2)))
    assert session.room(freed=2) == 3


def test_a_late_renewal_gives_no_seat_back_to_the_dead() -> None:
    """A renewal that was judged before the result, but answered after it, must not take the seat again."""
    session = make_session(capacity=1)
    one = given(session, started=True)
    session.expect()
    session.answer("r", finish(session, one), RECORDED, 1.0)
    session.expect()
    state = LeaseState(attempt_id=one.attempt_id, epoch=1, owned=True, state="RUNNING", lease_ms=30_000)
    session.renewed("n", Renewed(attempts=(state,)), 1.0)
    assert session.room() == 1


def test_a_lost_lease_frees_its_seat() -> None:
    """The renewal says who owns what."""
    session = make_session(capacity=1)
    one = given(session, started=True)
    sent(session)
    session.expect()
    lost = LeaseState(attempt_id=one.attempt_id, epoch=1, owned=False)
    session.renewed("n", Renewed(attempts=(lost,)), 1.0)
    assert session.room() == 1
    (message,) = sent(session)
    assert isinstance(message, messages.Renewed)
    assert (message.attempts[0].ok, message.attempts[0].code) == (False, "STALE_ATTEMPT")


def test_after_generation_1_seats_open_with_resume() -> None:
    """What is resumed takes its seats."""
    session = make_session(capacity=3, generation=2)
    assert session.phase is Phase.RESUMING
    assert session.room() == 0
    held = assignment_for(session)
    session.expect()
    state = LeaseState(attempt_id=held.attempt_id, epoch=1, owned=True, state="RUNNING", lease_ms=9)
    session.resumed("m", Resumed(attempts=(state,), resend=()), 0.0)
    assert session.room() == 2
    assert session.frees(finish(session, held))


def test_a_failed_resume_may_be_repeated() -> None:
    """Nothing is assigned until one succeeds."""
    session = make_session(generation=2)
    for _ in range(2):
        session.expect()
        session.resumed("m", Unavailable("away"), 0.0)
    assert session.room() == 0
    session.expect()
    session.resumed("m", Resumed(attempts=(), resend=()), 0.0)
    assert session.room() == 4


def test_drained_comes_last() -> None:
    """After the last seat and the last answer, once."""
    session = make_session()
    one = given(session, started=True)
    sent(session)
    session.drain("d")
    assert session.room() == 0
    assert sent(session) == []
    session.expect()
    session.answer("r", finish(session, one), RECORDED, 1.0)
    assert [type(message) for message in sent(session)] == [messages.Recorded, messages.Drained]
    session.drain("again")
    assert [type(message) for message in sent(session)] == [messages.Drained]


def test_a_cancel_is_told_once() -> None:
    """Hints repeat; the message doesn't."""
    session = make_session()
    one = given(session, started=True)
    sent(session)
    session.tell_cancel(one.attempt_id, is_live=True)
    session.tell_cancel(one.attempt_id, is_live=True)
    session.tell_cancel(assignment_for(session).attempt_id, is_live=True)
    assert sent(session) == [messages.CancelRequested(attempt_id=one.attempt_id.hex())]
    assert session.room() == 3


def test_a_cancel_that_ended_the_attempt_frees_its_seat() -> None:
    """A task cancelled before its Start never runs, whether or not the worker says another word about it."""
    session = make_session()
    one = given(session)
    sent(session)
    session.tell_cancel(one.attempt_id, is_live=False)
    assert sent(session) == [messages.CancelRequested(attempt_id=one.attempt_id.hex())]
    assert session.room() == 4


def test_a_flood_ends_the_session() -> None:
    """Four commands for each seat and 256 more may be unanswered."""
    session = make_session(capacity=1)
    endings = []
    for _ in range(261):
        session.expect()
        endings.append(session.outbox.ending)
    assert endings[:260] == [None] * 260
    assert session.outbox.ending is not None
    assert session.outbox.ending.code == 1013
    assert session.room() == 0


def test_forgotten_leases_free_their_seats() -> None:
    """A worker that never answers an assignment doesn't lose the seat for ever."""
    session = make_session(capacity=1)
    given(session)
    session.forget_expired(29.0)
    assert session.room() == 0
    session.forget_expired(31.0)
    assert session.room() == 1


def test_declines_free_their_seats() -> None:
    """Whatever the reason."""
    session = make_session(capacity=1)
    one = given(session)
    command = DeclineAttempt(
        session_id=session.session_id,
        command_id="d",
        attempt_id=one.attempt_id,
        epoch=1,
        reason=DeclineReason.UNSUPPORTED,
    )
    session.expect()
    session.answer("d", command, Declined(), 0.0)
    assert session.room() == 1
