"""How pending operations are packed into ticks, and who gets turns."""

from __future__ import annotations

import itertools

from orbit.domain.errors import Unavailable
from orbit.domain.ids import new_id
from orbit.domain.limits import MIB
from orbit.domain.states import DeclineReason, Disposition, Outcome, TaskState
from orbit.pulse.commands import (
    Claimed,
    ClaimTasks,
    DeclineAttempt,
    FinishAttempt,
    PromoteTasks,
    Recorded,
    StartAttempt,
    Started,
)
from orbit.scheduler.application import Application, Tick, Waiting
from orbit.scheduler.session import WorkerSession
from tests.unit.scheduler.desk import assignment_for, make_application, make_session, sent

RECORDED = Recorded(task_state=TaskState.SUCCEEDED, disposition=Disposition.APPLIED)


def finishing(session: WorkerSession, attempt_id: bytes, size: int = 0) -> Waiting:
    session.expect(size)
    command = FinishAttempt(
        session_id=session.session_id,
        command_id="r",
        attempt_id=attempt_id,
        epoch=1,
        outcome=Outcome.SUCCEEDED,
    )
    return Waiting(session, "r", command, size)


def starting(session: WorkerSession, attempt_id: bytes) -> Waiting:
    session.expect()
    command = StartAttempt(
        session_id=session.session_id, command_id="s", attempt_id=attempt_id, epoch=1, lease_ms=30_000
    )
    return Waiting(session, "s", command)


def claims(tick: Tick) -> list[ClaimTasks]:
    return [operation for operation in tick.operations if isinstance(operation, ClaimTasks)]


def wanted(application: Application) -> None:
    for pool in application.pools.values():
        pool.is_wanted = True


def running(session: WorkerSession) -> bytes:
    """Give a session one started attempt."""
    one = assignment_for(session)
    session.assign(one, 0.0)
    session.held[one.attempt_id].is_started = True
    return one.attempt_id


def test_a_tick_takes_64_of_each_kind() -> None:
    """What is left over stays in line, in order."""
    session = make_session(capacity=200)
    application, _ = make_application(session)
    for _ in range(100):
        application.finish(finishing(session, new_id()))
        application.start(starting(session, new_id()))
    application.promote([new_id() for _ in range(300)])
    first, second = application.take(0.0), application.take(0.0)
    for tick, ends, starts, due in ((first, 64, 64, 256), (second, 36, 36, 44)):
        kinds = [type(operation) for operation in tick.operations]
        assert kinds.count(FinishAttempt) == ends
        assert kinds.count(StartAttempt) == starts
        (promotion,) = [operation for operation in tick.operations if isinstance(operation, PromoteTasks)]
        assert len(promotion.task_ids) == due
    assert not application.has_work(0.0)


def test_bodies_of_a_tick_are_bounded() -> None:
    """At most 4 MiB, but always at least one result."""
    session = make_session(capacity=200)
    application, _ = make_application(session)
    for _ in range(3):
        application.finish(finishing(session, new_id(), size=3 * MIB))
    sizes = []
    while (tick := application.take(0.0)).operations:
        sizes.append(len(tick.operations))
    assert sizes == [1, 1, 1]


def test_a_result_claims_for_the_seat_that_it_frees() -> None:
    """A full session's result comes with a claim of one; an unknown attempt's with none."""
    session = make_session(capacity=1)
    application, _ = make_application(session)
    attempt_id = running(session)
    application.finish(finishing(session, attempt_id))
    (claim,) = claims(application.take(0.0))
    assert [seat.free for seat in claim.seats] == [1]
    assert len(claim.attempt_ids) == 1
    application.finish(finishing(session, new_id()))
    assert claims(application.take(0.0)) == []


def test_no_claim_without_a_sign_of_work() -> None:
    """A Start alone claims nothing; a probe's word does."""
    session = make_session()
    application, _ = make_application(session)
    application.start(starting(session, new_id()))
    assert claims(application.take(0.0)) == []
    wanted(application)
    assert application.has_work(0.0)
    (claim,) = claims(application.take(0.0))
    assert len(claim.attempt_ids) == 4


def test_seats_are_offered_emptiest_first_and_never_exceeded() -> None:
    """At most 64 candidates for all sessions of a pool together."""
    sessions = [make_session(capacity=capacity) for capacity in (10, 100, 50)]
    application, _ = make_application(*sessions)
    wanted(application)
    (claim,) = claims(application.take(0.0))
    assert [seat.free for seat in claim.seats] == [100, 50, 10]
    assert len(claim.attempt_ids) == 64


def test_pools_share_a_tick_and_take_turns() -> None:
    """Twelve pools: eight claims a tick with equal room, and each pool leads once."""
    sessions = [make_session(capacity=100, queue_ids=(new_id(),)) for _ in range(12)]
    application, _ = make_application(*sessions)
    leaders = []
    for _ in range(12):
        wanted(application)
        found = claims(application.take(0.0))
        assert [len(claim.attempt_ids) for claim in found] == [8] * 8
        leaders.append(found[0].queue_ids)
    assert len(set(leaders)) == 12


def test_queues_rotate_within_a_pool() -> None:
    """Each queue leads the claim once in as many claims."""
    session = make_session(queue_ids=tuple(new_id() for _ in range(3)))
    application, _ = make_application(session)
    leaders = []
    for _ in range(3):
        wanted(application)
        leaders.append(claims(application.take(0.0))[0].queue_ids[0])
    assert len(set(leaders)) == 3


def test_an_empty_claim_rests_before_the_next() -> None:
    """5 ms, then twice as long each time, at most 250 ms; a claim that finds something ends the rest."""
    session = make_session()
    application, _ = make_application(session)
    (pool,) = application.pools.values()
    rests = []
    for _ in range(9):
        pool.is_wanted = True
        pool.not_before = 0.0
        tick = application.take(0.0)
        application.settle(tick, [Claimed(assignments=(), more=True)], 100.0)
        assert not pool.is_wanted
        rests.append(round((pool.not_before - 100.0) * 1_000))
    assert rests == [5, 10, 20, 40, 80, 160, 250, 250, 250]
    assert not application.has_work(100.1)
    pool.is_wanted, pool.not_before = True, 0.0
    application.settle(application.take(0.0), [Claimed(assignments=(assignment_for(session),))], 100.0)
    assert not pool.is_wanted
    pool.is_wanted = True
    application.settle(application.take(0.0), [Unavailable("away")], 100.0)
    assert round((pool.not_before - 100.0) * 1_000) == 5


def test_a_hint_in_vain_costs_no_rest_but_the_next_one_a_probe() -> None:
    """What the hint was about may have gone to somebody else; the first claim that finds something ends the doubt."""
    session = make_session()
    application, _ = make_application(session)
    (pool,) = application.pools.values()
    assert pool.hint(0.0)
    assert application.has_work(0.0)
    application.settle(application.take(0.0), [Claimed(assignments=())], 0.0)
    assert not application.has_work(0.0)
    assert pool.not_before == 0.0
    assert not pool.hint(0.0)
    assert not application.has_work(0.0)
    wanted(application)
    application.settle(application.take(0.0), [Claimed(assignments=(assignment_for(session),))], 0.0)
    assert pool.hint(0.0)


def test_a_hint_during_a_claim_asks_for_another() -> None:
    """What it is about was committed after that claim had looked, whatever that one found."""
    session = make_session()
    for found in ((), (assignment_for(session),)):
        application, _ = make_application(session)
        (pool,) = application.pools.values()
        assert pool.hint(0.0)
        tick = application.take(0.0)
        assert pool.hint(0.0)
        application.settle(tick, [Claimed(assignments=found)], 0.0)
        assert len(claims(application.take(0.0))) == 1


def test_a_hint_during_a_claim_on_sight_spares_the_rest() -> None:
    """It is newer than what that claim saw; an error rests all the same, and the hint is kept."""
    application, _ = make_application(make_session())
    (pool,) = application.pools.values()
    for outcome, is_resting in ((Claimed(assignments=()), False), (Unavailable("away"), True)):
        wanted(application)
        tick = application.take(100.0)
        assert pool.hint(100.0)
        application.settle(tick, [outcome], 100.0)
        assert (pool.not_before > 100.0, pool.is_due(100.0)) == (is_resting, not is_resting)
        assert pool.is_due(101.0)


def test_a_claim_that_finds_something_ends_a_rest() -> None:
    """One for seats that came back may do so before the rest is over."""
    session = make_session()
    application, _ = make_application(session)
    (pool,) = application.pools.values()
    pool.not_before = 200.0
    application.finish(finishing(session, running(session)))
    found = Claimed(assignments=(assignment_for(session),), more=True)
    application.settle(application.take(100.0), [RECORDED, found], 100.0)
    assert pool.is_due(100.0)


def test_seats_that_come_back_and_find_nothing_cast_no_doubt() -> None:
    """A result's tick claims for its seats in any case; finding nothing is the usual thing at light load."""
    session = make_session()
    application, _ = make_application(session)
    (pool,) = application.pools.values()
    application.finish(finishing(session, running(session)))
    tick = application.take(0.0)
    assert len(claims(tick)) == 1
    application.settle(tick, [RECORDED, Claimed(assignments=())], 0.0)
    assert pool.not_before == 0.0
    assert pool.hint(0.0)


def test_a_claim_that_used_all_candidates_is_followed_at_once() -> None:
    """There may be more than it could see."""
    session = make_session(capacity=100)
    application, _ = make_application(session)
    wanted(application)
    tick = application.take(0.0)
    assignments = tuple(assignment_for(session) for _ in range(64))
    dealt = application.settle(tick, [Claimed(assignments=assignments)], 0.0)
    assert len(dealt) == 64
    assert application.has_work(0.0)
    assert session.room() == 36


def test_what_cannot_be_delivered_is_handed_back() -> None:
    """A session that left or drains during its claim gets nothing; the attempt returns at once."""
    for leave in (True, False):
        session = make_session()
        application, _ = make_application(session)
        wanted(application)
        tick = application.take(0.0)
        if leave:
            application.leave(session)
        else:
            session.drain("d")
        one = assignment_for(session)
        assert application.settle(tick, [Claimed(assignments=(one,))], 0.0) == []
        (decline,) = application.take(0.0).operations
        assert isinstance(decline, DeclineAttempt)
        assert (decline.attempt_id, decline.reason) == (one.attempt_id, DeclineReason.DRAINING)


def test_a_stopping_application_answers_but_claims_nothing() -> None:
    """Commands go on until the connections end."""
    session = make_session(capacity=1)
    application, _ = make_application(session)
    application.is_stopping = True
    wanted(application)
    assert not application.has_work(0.0)
    application.finish(finishing(session, running(session)))
    tick = application.take(0.0)
    assert [type(operation) for operation in tick.operations] == [FinishAttempt]
    application.settle(tick, [RECORDED], 0.0)
    assert application.is_idle


def test_outcomes_reach_the_sessions_that_asked() -> None:
    """Position by position, whatever the kinds."""
    one, two = make_session(), make_session()
    application, _ = make_application(one, two)
    application.start(starting(two, new_id()))
    application.finish(finishing(one, new_id()))
    for session in (one, two):
        sent(session)
    tick = application.take(0.0)
    outcomes = [
        RECORDED if isinstance(operation, FinishAttempt) else Started(lease_ms=1, deadline_ms=None)
        for operation in tick.operations
    ]
    application.settle(tick, outcomes, 0.0)
    assert [type(message).__name__ for message in sent(one)] == ["Recorded"]
    assert [type(message).__name__ for message in sent(two)] == ["Started"]


def test_one_turn_at_a_time() -> None:
    """An application with a tick in flight asks for the next only after it."""
    session = make_session()
    application, wishes = make_application(session)
    application.start(starting(session, new_id()))
    application.in_flight = True
    application.wake(0.0)
    assert wishes == []
    application.in_flight = False
    application.wake(0.0)
    assert wishes == [application]


def test_due_tasks_are_promoted_once_at_a_time() -> None:
    """A probe that finds them again while their promotion is in flight adds nothing."""
    application, _ = make_application()
    ids = [new_id(), new_id()]
    application.promote(ids)
    application.promote(ids)
    tick = application.take(0.0)
    assert [operation.task_ids for operation in tick.operations if isinstance(operation, PromoteTasks)] == [
        tuple(ids)
    ]
    application.promote(ids)
    assert not application.has_work(0.0)
    application.settle(tick, [None], 0.0)
    application.promote(ids)
    assert application.has_work(0.0)


def test_an_application_without_anybody_can_be_forgotten() -> None:
    """The last session's leave empties it."""
    sessions = [make_session() for _ in range(2)]
    application, _ = make_application(*sessions)
    for session, is_empty in zip(sessions, (False, True), strict=True):
        application.leave(session)
        assert application.is_empty is is_empty
    assert list(itertools.chain(application.pools)) == []
