"""The state table of a task, row by row: task, attempt, permits and token after each event."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from orbit.domain.errors import (
    CancelRequested,
    DeadlineExceeded,
    IdempotencyConflict,
    OrbitError,
    QueuePaused,
    RateLimited,
    StaleAttempt,
    StateConflict,
)
from orbit.domain.retry import RetryPolicy
from orbit.domain.states import Backoff, DeclineReason, Disposition, OnUnknown, Outcome, TaskState
from orbit.pulse.commands import Recorded
from tests.support.pulse import Pulse, Worker, succeeded
from tests.support.rows import database_now, lapse, pass_deadline, set_columns

TWICE = RetryPolicy(max_attempts=2, backoff=Backoff.FIXED, initial_ms=10_000, max_ms=60_000)


def counts(pulse: Pulse) -> tuple[int, int, int]:
    """Unfinished tasks, live attempts and unstarted leases of the queue."""
    usage = pulse.usage()
    return usage.unfinished, usage.active, usage.leased_unstarted


def test_claim_leases_the_task_takes_the_permit_and_the_key(pulse: Pulse, worker: Worker) -> None:
    """Claim: LEASED, epoch + 1, permit, key held under a fresh token."""
    task_id = pulse.submit(concurrency_key="k")
    assert counts(pulse) == (1, 0, 0)
    held = worker.claim_one()
    task, attempt, key = pulse.task(task_id), pulse.attempt(held), pulse.key("k")
    assert (task.state, task.epoch, task.attempts_used, task.ready) == ("LEASED", 1, 0, None)
    assert (attempt.state, attempt.epoch, attempt.session_id) == ("LEASED", 1, worker.session_id)
    assert (key.holder_attempt_id, key.last_token) == (held.attempt_id, 1)
    assert held.concurrency_token == attempt.concurrency_token == 1
    assert counts(pulse) == (1, 1, 1)
    assert pulse.quota().active == 1


def test_start_runs_the_task_and_uses_an_attempt(pulse: Pulse, worker: Worker) -> None:
    """Start: RUNNING, attempts_used + 1, everything kept."""
    task_id = pulse.submit(concurrency_key="k")
    held = worker.run_one()
    task, attempt = pulse.task(task_id), pulse.attempt(held)
    assert (task.state, task.epoch, task.attempts_used) == ("RUNNING", 1, 1)
    assert (attempt.state, attempt.concurrency_token) == ("RUNNING", held.concurrency_token)
    assert attempt.started_at is not None
    assert pulse.key("k").holder_attempt_id == held.attempt_id
    assert counts(pulse) == (1, 1, 0)
    assert pulse.usage().window_count == 1


def test_renewal_and_resume_keep_attempt_and_token(pulse: Pulse, worker: Worker) -> None:
    """Renew, reconnect and resume extend the lease of the same attempt under the same token."""
    pulse.submit(concurrency_key="k")
    held = worker.run_one()
    before = pulse.attempt(held)
    assert worker.renew(held, lease_ms=600_000).attempts[0].owned
    renewed = pulse.attempt(held)
    assert renewed.lease_expires_at > before.lease_expires_at + timedelta(seconds=500)
    again = worker.reconnect()
    resumed = again.resume(held, lease_ms=30_000)
    assert resumed.attempts[0].owned
    assert resumed.attempts[0].state == "RUNNING"
    after = pulse.attempt(held)
    assert (after.epoch, after.concurrency_token, after.state) == (1, before.concurrency_token, "RUNNING")
    assert after.session_id == again.session_id
    assert not worker.renew(held).attempts[0].owned, "a superseded session renews nothing"
    assert isinstance(worker.finish(held), StaleAttempt)
    assert again.finish(held) == Recorded(task_state=TaskState.SUCCEEDED, disposition=Disposition.APPLIED)


def test_resume_sends_undelivered_leases_again(pulse: Pulse, worker: Worker) -> None:
    """A lease that the worker never heard of is named to it, in its new session."""
    task_id = pulse.submit(concurrency_key="k")
    held = worker.claim_one()
    again = worker.reconnect()
    resumed = again.resume()
    assert resumed.attempts == ()
    assert [(one.task_id, one.attempt_id, one.concurrency_token) for one in resumed.resend] == [
        (task_id, held.attempt_id, held.concurrency_token)
    ]
    assert succeeded(again.start(held))


@pytest.mark.parametrize(
    ("reason", "pause"),
    [(DeclineReason.DRAINING, 0), (DeclineReason.BUSY, 1), (DeclineReason.UNSUPPORTED, 1)],
)
def test_decline_gives_everything_back_and_uses_no_attempt(
    pulse: Pulse, worker: Worker, reason: DeclineReason, pause: int
) -> None:
    """Decline: WAITING; at once when draining, in a second otherwise; permit and key released, token raised."""
    task_id = pulse.submit(concurrency_key="k")
    held = worker.claim_one()
    succeeded(worker.decline(held, reason))
    task, attempt, key = pulse.task(task_id), pulse.attempt(held), pulse.key("k")
    assert (task.state, task.attempts_used, task.epoch) == ("WAITING", 0, 1)
    assert (attempt.state, attempt.ended_task_state) == ("DECLINED", "WAITING")
    assert (key.holder_attempt_id, key.last_token) == (None, 2)
    assert task.available_at == attempt.ended_at + timedelta(seconds=pause)
    assert (task.ready, task.due_at) == ((1, None) if pause == 0 else (None, task.available_at))
    assert counts(pulse) == (1, 0, 0)


def test_a_decline_is_repeated_by_its_content(pulse: Pulse, worker: Worker) -> None:
    """The same decline again is answered alike; another reason under its message id is refused."""
    pulse.submit()
    held = worker.claim_one()
    first = worker.declining(held, DeclineReason.BUSY)
    succeeded(pulse.tick(first)[0])
    succeeded(pulse.tick(first)[0])
    other = worker.declining(held, DeclineReason.DRAINING, command_id=first.command_id)
    assert isinstance(pulse.tick(other)[0], IdempotencyConflict)


def test_a_started_attempt_cant_be_declined_and_an_unstarted_one_cant_be_finished(
    pulse: Pulse, worker: Worker
) -> None:
    """Decline is for what hasn't started, a result for what has."""
    pulse.submit()
    held = worker.claim_one()
    assert isinstance(worker.finish(held), StateConflict)
    succeeded(worker.start(held))
    assert isinstance(worker.decline(held), StateConflict)
    assert pulse.attempt(held).state == "RUNNING"


@pytest.mark.parametrize(("outcome", "state"), [(Outcome.SUCCEEDED, "SUCCEEDED"), (Outcome.FAILED, "FAILED")])
def test_result_ends_the_task_and_releases(
    pulse: Pulse, worker: Worker, outcome: Outcome, state: str
) -> None:
    """Success and failure: terminal at once, backlog place, permit and key released, one event."""
    task_id = pulse.submit(concurrency_key="k", retry=TWICE)
    held = worker.run_one()
    output = b'{"n":1.10}' if outcome is Outcome.SUCCEEDED else None
    code = "BOOM" if outcome is Outcome.FAILED else None
    assert succeeded(worker.finish(held, outcome, output=output, error_code=code)).task_state == state
    task, key = pulse.task(task_id), pulse.key("k")
    assert (task.state, task.error_code) == (state, code)
    assert task.finished_at == pulse.attempt(held).ended_at
    assert (pulse.attempt(held).state, key.holder_attempt_id, key.last_token) == (state, None, 2)
    assert counts(pulse) == (0, 0, 0)
    assert (pulse.quota().unfinished, pulse.quota().active) == (0, 0)
    assert pulse.events(task_id) == [state]
    assert [row.output for row in pulse.rows("attempt_outputs", task_id=task_id)] == (
        [output] if output else []
    )


def test_safe_retry_waits_for_its_backoff_without_key_or_permit(pulse: Pulse, worker: Worker) -> None:
    """Safe retry with attempts left: WAITING, available after the backoff, key free meanwhile."""
    task_id = pulse.submit(concurrency_key="k", retry=TWICE)
    held = worker.run_one()
    assert succeeded(worker.finish(held, Outcome.RETRY, error_code="AGAIN")).task_state == "WAITING"
    task, attempt = pulse.task(task_id), pulse.attempt(held)
    delay = task.available_at - attempt.ended_at
    assert timedelta(seconds=8) <= delay <= timedelta(seconds=10)
    assert (task.due_at, task.ready, task.error_code) == (task.available_at, None, "AGAIN")
    assert attempt.state == "RETRYABLE"
    assert counts(pulse) == (1, 0, 0)
    other = pulse.submit(concurrency_key="k")
    assert worker.claim_one().task_id == other
    assert pulse.events(task_id) == []


def test_retry_after_replaces_the_backoff(pulse: Pulse, worker: Worker) -> None:
    """`retry_after_ms` of a result is the delay, exactly."""
    task_id = pulse.submit(retry=TWICE)
    held = worker.run_one()
    succeeded(worker.finish(held, Outcome.RETRY, retry_after_ms=86_400_000))
    assert pulse.task(task_id).available_at == pulse.attempt(held).ended_at + timedelta(days=1)


def test_promotion_brings_a_retried_task_back_with_a_larger_token(pulse: Pulse, worker: Worker) -> None:
    """After the backoff the same task runs as epoch 2, under a larger token, and its budget ends it."""
    task_id = pulse.submit(concurrency_key="k", retry=TWICE)
    first = worker.run_one()
    succeeded(worker.finish(first, Outcome.RETRY))
    assert pulse.promote(task_id) == 0, "not due yet"
    set_columns(
        pulse.session,
        "tasks",
        dict.fromkeys(("available_at", "due_at"), database_now(pulse.session)),
        task_id=task_id,
    )
    assert pulse.promote(task_id) == 1
    assert pulse.promote(task_id) == 0
    second = worker.run_one()
    assert (second.epoch, second.attempt_number, second.max_attempts) == (2, 2, 2)
    assert second.concurrency_token is not None
    assert first.concurrency_token is not None
    assert second.concurrency_token > first.concurrency_token
    assert succeeded(worker.finish(second, Outcome.RETRY, error_code="AGAIN")).task_state == "FAILED"
    assert pulse.events(task_id) == ["FAILED"]


def test_a_retry_beyond_the_total_deadline_fails_at_once(pulse: Pulse, worker: Worker) -> None:
    """No backoff ends after the total deadline: the task is FAILED DEADLINE_EXCEEDED now."""
    task_id = pulse.submit(retry=TWICE, timeout_ms=7_999)
    held = worker.run_one()
    assert succeeded(worker.finish(held, Outcome.RETRY)).task_state == "FAILED"
    assert pulse.task(task_id).error_code == "DEADLINE_EXCEEDED"


@pytest.mark.parametrize("on_unknown", [None, OnUnknown.REVIEW, OnUnknown.RETRY])
@pytest.mark.parametrize("ended_by", ["result", "lease"])
def test_unknown_effect_asks_a_person_or_retries(
    pulse: Pulse, worker: Worker, on_unknown: OnUnknown | None, ended_by: str
) -> None:
    """Unknown effect, reported or by a lapsed lease: review (place kept, key free), or retry if the task says so."""
    task_id = pulse.submit(concurrency_key="k", retry=TWICE, on_unknown=on_unknown)
    held = worker.run_one()
    end_as_unknown(pulse, worker, held, ended_by)
    task = pulse.task(task_id)
    assert task.state == ("WAITING" if on_unknown is OnUnknown.RETRY else "NEEDS_REVIEW")
    assert pulse.attempt(held).state == "UNKNOWN"
    assert (pulse.key("k").holder_attempt_id, counts(pulse)) == (None, (1, 0, 0))
    assert pulse.events(task_id) == ([] if on_unknown is OnUnknown.RETRY else ["NEEDS_REVIEW"])
    assert (task.finished_at, task.due_at is not None) == (None, on_unknown is OnUnknown.RETRY)


@pytest.mark.parametrize("ended_by", ["result", "lease"])
def test_unknown_effect_without_attempts_left_needs_review(
    pulse: Pulse, worker: Worker, ended_by: str
) -> None:
    """on_unknown=RETRY can't retry what has no budget: a person decides."""
    task_id = pulse.submit(on_unknown=OnUnknown.RETRY)
    end_as_unknown(pulse, worker, worker.run_one(), ended_by)
    assert pulse.task(task_id).state == "NEEDS_REVIEW"


def end_as_unknown(pulse: Pulse, worker: Worker, held: Any, ended_by: str) -> None:
    if ended_by == "result":
        succeeded(worker.finish(held, Outcome.UNKNOWN))
    else:
        lapse(pulse.session, held.attempt_id)
        assert pulse.expire(held.attempt_id).attempts == 1


def test_lease_that_ends_before_start_uses_no_attempt(pulse: Pulse, worker: Worker) -> None:
    """Lease lapses before Start: WAITING and ready, EXPIRED, released; the late Start is refused."""
    task_id = pulse.submit(concurrency_key="k")
    held = worker.claim_one()
    lapse(pulse.session, held.attempt_id)
    assert isinstance(worker.start(held), StaleAttempt), "a Start needs a living lease, expired or not"
    assert pulse.expire(held.attempt_id).attempts == 1
    task = pulse.task(task_id)
    assert (task.state, task.attempts_used, task.ready) == ("WAITING", 0, 1)
    assert (pulse.attempt(held).state, pulse.key("k").holder_attempt_id) == ("EXPIRED", None)
    assert isinstance(worker.start(held), StaleAttempt)
    again = worker.claim_one()
    assert (again.task_id, again.epoch) == (task_id, 2)


def test_a_result_after_the_leases_end_but_before_expiry_counts(pulse: Pulse, worker: Worker) -> None:
    """Results are judged by live state and epoch: a lapsed lease that nobody has expired yet is still the attempt's."""
    task_id = pulse.submit()
    held = worker.run_one()
    lapse(pulse.session, held.attempt_id)
    assert succeeded(worker.finish(held)).disposition is Disposition.APPLIED
    assert pulse.expire(held.attempt_id).attempts == 0
    assert pulse.events(task_id) == ["SUCCEEDED"]


def test_late_results_become_evidence_and_move_nothing(pulse: Pulse, worker: Worker) -> None:
    """After the end: kept as evidence, at most eight different ones, no counter and no state moves."""
    task_id = pulse.submit()
    held = worker.run_one()
    lapse(pulse.session, held.attempt_id)
    pulse.expire(held.attempt_id)
    before = (pulse.task(task_id), pulse.usage(), pulse.quota().unfinished)
    for n in range(12):
        for _ in range(2):
            late = succeeded(worker.finish(held, output=b"%d" % n))
            assert (late.disposition, late.task_state) == (Disposition.LATE, "NEEDS_REVIEW")
    assert len(pulse.rows("late_evidence", attempt_id=held.attempt_id)) == 8
    assert (pulse.task(task_id), pulse.usage(), pulse.quota().unfinished) == before


def test_cancel_while_waiting_or_leased_ends_at_once(pulse: Pulse, worker: Worker) -> None:
    """Cancel before Start: CANCELLED now, whatever the worker does next."""
    waiting, delayed = pulse.submit(handler="other"), pulse.submit(delay_ms=60_000)
    leased = pulse.submit(concurrency_key="k")
    held = worker.claim_one()
    for task_id in (waiting, delayed, leased):
        answer = succeeded(pulse.cancel(task_id))
        assert (answer.task.state, answer.intent) == ("CANCELLED", False)
        assert pulse.events(task_id) == ["CANCELLED"]
    assert (pulse.attempt(held).state, pulse.key("k").holder_attempt_id) == ("CANCELLED", None)
    assert isinstance(worker.start(held), CancelRequested)
    assert isinstance(worker.decline(held), StaleAttempt)
    assert counts(pulse) == (0, 0, 0)
    assert worker.claim(8) == ()


def test_cancel_while_running_is_an_intent_that_the_next_renewal_tells(pulse: Pulse, worker: Worker) -> None:
    """Cancel after Start: stored, permits kept; again: the same intent; of a terminal task: STATE_CONFLICT."""
    task_id = pulse.submit(concurrency_key="k")
    held = worker.run_one()
    first = succeeded(pulse.cancel(task_id))
    assert (first.task.state, first.intent) == ("RUNNING", True)
    again = succeeded(pulse.cancel(task_id))
    assert again.task.cancel_requested_at == first.task.cancel_requested_at
    assert again.task.revision == first.task.revision
    assert pulse.key("k").holder_attempt_id == held.attempt_id
    assert worker.renew(held).attempts[0].cancel_requested
    assert counts(pulse) == (1, 1, 0)
    succeeded(worker.finish(held))
    assert isinstance(pulse.cancel(task_id), StateConflict)


@pytest.mark.parametrize("on_unknown", [OnUnknown.REVIEW, OnUnknown.RETRY])
@pytest.mark.parametrize("end", ["SUCCEEDED", "FAILED", "RETRY", "UNKNOWN", "lease"])
def test_end_after_a_cancel_intent(pulse: Pulse, worker: Worker, end: str, on_unknown: OnUnknown) -> None:
    """C37: outcomes as reported; safe retry is CANCELLED; unknown is CANCELLED if it may retry, else review."""
    task_id = pulse.submit(retry=TWICE, on_unknown=on_unknown, concurrency_key="k")
    held = worker.run_one()
    succeeded(pulse.cancel(task_id))
    if end == "lease":
        end_as_unknown(pulse, worker, held, "lease")
    else:
        succeeded(worker.finish(held, Outcome(end)))
    unknown = "CANCELLED" if on_unknown is OnUnknown.RETRY else "NEEDS_REVIEW"
    expected = {"SUCCEEDED": "SUCCEEDED", "FAILED": "FAILED", "RETRY": "CANCELLED"}.get(end, unknown)
    assert pulse.task(task_id).state == expected
    assert pulse.events(task_id) == [expected]
    assert counts(pulse) == (int(expected == "NEEDS_REVIEW"), 0, 0)
    assert pulse.key("k").holder_attempt_id is None
    assert worker.claim(8) == ()


@pytest.mark.parametrize("total", [False, True])
@pytest.mark.parametrize("leased", [False, True])
def test_a_deadline_that_passes_unstarted_fails_the_task(
    pulse: Pulse, worker: Worker, leased: bool, total: bool
) -> None:
    """Start or total deadline passed before Start: FAILED with its code, attempt EXPIRED, everything released."""
    ahead = database_now(pulse.session) + timedelta(hours=1)
    task_id = pulse.submit(concurrency_key="k", start_deadline_at=ahead, timeout_ms=7_200_000)
    held = worker.claim_one() if leased else None
    pass_deadline(pulse.session, task_id, total=total)
    if held is None:
        assert worker.claim() == (), "a passed deadline is seen under the lock, expired or not"
    else:
        assert isinstance(worker.start(held), DeadlineExceeded)
    report = pulse.expire(tasks=[task_id])
    assert (report.attempts, report.tasks) == ((1, 0) if leased else (0, 1))
    task = pulse.task(task_id)
    code = "DEADLINE_EXCEEDED" if total else "START_DEADLINE_EXCEEDED"
    assert (task.state, task.error_code) == ("FAILED", code)
    assert counts(pulse) == (0, 0, 0)
    assert pulse.events(task_id) == ["FAILED"]
    if held is not None:
        assert (pulse.attempt(held).state, pulse.key("k").holder_attempt_id) == ("EXPIRED", None)
        assert isinstance(worker.start(held), DeadlineExceeded)


def test_a_start_ends_the_start_deadline(pulse: Pulse, worker: Worker) -> None:
    """Once started, the start deadline doesn't come back, not even in a retry."""
    ahead = database_now(pulse.session) + timedelta(hours=1)
    task_id = pulse.submit(start_deadline_at=ahead, retry=TWICE)
    held = worker.run_one()
    assert pulse.task(task_id).unstarted_deadline_at is None
    succeeded(worker.finish(held, Outcome.RETRY, retry_after_ms=0))
    assert pulse.task(task_id).unstarted_deadline_at is None
    set_columns(pulse.session, "tasks", {"start_deadline_at": ahead - timedelta(hours=2)}, task_id=task_id)
    again = worker.run_one()
    assert again.epoch == 2


def test_an_unstarted_lease_is_capped_at_the_start_deadline(pulse: Pulse, worker: Worker) -> None:
    """Neither claim nor renewal nor resume lets an unstarted lease outlive the start deadline."""
    ahead = database_now(pulse.session) + timedelta(seconds=10)
    pulse.submit(start_deadline_at=ahead)
    held = worker.claim_one()
    assert pulse.attempt(held).lease_expires_at == ahead
    assert 9_000 < held.lease_ms <= 10_000
    worker.renew(held, lease_ms=600_000)
    assert pulse.attempt(held).lease_expires_at == ahead
    worker.reconnect().resume(held, lease_ms=600_000)
    assert pulse.attempt(held).lease_expires_at == ahead


@pytest.mark.parametrize("shorter", ["attempt", "total"])
def test_the_attempts_deadline_and_the_lease_that_it_caps(pulse: Pulse, worker: Worker, shorter: str) -> None:
    """Attempt deadline = min(Start + attempt timeout, total); the lease ends at most 5 s after it."""
    times = {"attempt_timeout_ms": 8_000, "timeout_ms": 3_600_000}
    if shorter == "total":
        times = {"attempt_timeout_ms": 3_600_000, "timeout_ms": 8_000}
    task_id = pulse.submit(**times)
    held = worker.claim_one()
    granted = succeeded(worker.start(held, lease_ms=600_000))
    task, attempt = pulse.task(task_id), pulse.attempt(held)
    expected = task.deadline_at if shorter == "total" else attempt.started_at + timedelta(seconds=8)
    assert attempt.deadline_at == expected
    assert attempt.lease_expires_at == attempt.lease_cap_at == expected + timedelta(seconds=5)
    assert 0 < granted.deadline_ms <= 8_000
    worker.renew(held, lease_ms=600_000)
    assert pulse.attempt(held).lease_expires_at == expected + timedelta(seconds=5)


def test_a_lapse_past_the_total_deadline_fails_what_may_retry(pulse: Pulse, worker: Worker) -> None:
    """on_unknown=RETRY with the total deadline gone: FAILED DEADLINE_EXCEEDED, attempt UNKNOWN."""
    task_id = pulse.submit(on_unknown=OnUnknown.RETRY, retry=TWICE, timeout_ms=60_000)
    held = worker.run_one()
    lapse(pulse.session, held.attempt_id)
    past = database_now(pulse.session) - timedelta(seconds=1)
    set_columns(pulse.session, "tasks", {"deadline_at": past}, task_id=task_id)
    assert pulse.expire(held.attempt_id).attempts == 1
    task = pulse.task(task_id)
    assert (task.state, task.error_code, pulse.attempt(held).state) == (
        "FAILED",
        "DEADLINE_EXCEEDED",
        "UNKNOWN",
    )


def test_pause_stops_claims_and_starts_only(pulse: Pulse, worker: Worker) -> None:
    """Paused: no claim, no Start; submits, promotion, renewals, results, declines, cancels and recovery go on."""
    running, leased = pulse.submit(), pulse.submit(handler="b")
    run, lease = worker.run_one(), worker.claim_one(handlers=(("b", "1"),))
    set_columns(pulse.session, "queues", {"paused": 1}, queue_id=pulse.tenant.queue_id)
    delayed = pulse.submit(delay_ms=1_000)
    due = database_now(pulse.session)
    set_columns(pulse.session, "tasks", {"available_at": due, "due_at": due}, task_id=delayed)
    assert pulse.promote(delayed) == 1
    assert worker.claim(8) == ()
    refused = worker.start(lease)
    assert isinstance(refused, QueuePaused)
    assert refused.retry_after_ms
    assert worker.renew(run).attempts[0].owned
    assert succeeded(worker.finish(run)).task_state == "SUCCEEDED"
    lapse(pulse.session, lease.attempt_id)
    assert pulse.expire(lease.attempt_id).attempts == 1
    assert pulse.task(leased).state == "WAITING"
    assert succeeded(pulse.cancel(leased)).task.state == "CANCELLED"
    assert pulse.task(running).state == "SUCCEEDED"


def test_what_falls_due_in_a_pause_waits_for_its_end_c38(pulse: Pulse, worker: Worker) -> None:
    """C38: a delayed task and a retry after its backoff become ready in a pause, and run once each after it."""
    retried = pulse.submit(retry=RetryPolicy(max_attempts=2, backoff=Backoff.FIXED, initial_ms=60_000))
    succeeded(worker.finish(worker.run_one(), Outcome.RETRY))
    delayed = pulse.submit(delay_ms=60_000)
    set_columns(pulse.session, "queues", {"paused": 1}, queue_id=pulse.tenant.queue_id)
    due = database_now(pulse.session)
    for task_id in (retried, delayed):
        set_columns(pulse.session, "tasks", {"available_at": due, "due_at": due}, task_id=task_id)
    assert pulse.promote(retried, delayed) == 2
    assert worker.claim(8) == ()
    set_columns(pulse.session, "queues", {"paused": 0}, queue_id=pulse.tenant.queue_id)
    held = worker.claim(8)
    assert {one.task_id for one in held} == {retried, delayed}
    for outcome in pulse.tick(*map(worker.starting, held)) + pulse.tick(*map(worker.finishing, held)):
        succeeded(outcome)
    assert pulse.events(retried) == pulse.events(delayed) == ["SUCCEEDED"]
    assert (pulse.task(retried).attempts_used, pulse.task(delayed).attempts_used) == (2, 1)


def test_the_rate_window_bounds_starts_and_claims_reserve_in_it(pulse: Pulse, worker: Worker) -> None:
    """Room for claims = rate - window count - leased unstarted; a lowered rate refuses Starts, which cost nothing."""
    set_columns(pulse.session, "queues", {"rate_per_second": 3}, queue_id=pulse.tenant.queue_id)
    pulse.submit_many(6)
    leases = worker.claim(6)
    assert len(leases) == 3
    set_columns(pulse.session, "queues", {"rate_per_second": 1}, queue_id=pulse.tenant.queue_id)
    outcomes = pulse.tick(*(worker.starting(one) for one in leases))
    refused = [one for one in outcomes if isinstance(one, RateLimited)]
    assert len(refused) == 2
    assert all(one.retry_after_ms is not None and 0 < one.retry_after_ms <= 1_000 for one in refused)
    usage = pulse.usage()
    assert (usage.window_count, usage.leased_unstarted, usage.active) == (1, 2, 3)
    assert sum(pulse.task(one.task_id).attempts_used for one in leases) == 1


def test_lowered_concurrency_revokes_nothing_and_waits(pulse: Pulse, worker: Worker) -> None:
    """max_concurrency bounds live attempts; lowering it waits until they are fewer."""
    pulse.submit_many(4)
    set_columns(pulse.session, "queues", {"max_concurrency": 2}, queue_id=pulse.tenant.queue_id)
    first, second = worker.claim(4)
    set_columns(pulse.session, "queues", {"max_concurrency": 1}, queue_id=pulse.tenant.queue_id)
    assert worker.claim(4) == ()
    succeeded(worker.start(first))
    succeeded(worker.finish(first))
    assert worker.claim(4) == ()
    succeeded(worker.decline(second))
    assert len(worker.claim(4)) == 1


def test_workers_without_keys_get_keyless_tasks_only(pulse: Pulse) -> None:
    """A worker that didn't declare concurrency keys never sees a keyed task."""
    pulse.submit(concurrency_key="k")
    plain = pulse.submit()
    assert [one.task_id for one in pulse.worker(concurrency_keys=False).claim(8)] == [plain]


def test_one_tick_hands_a_key_over(pulse: Pulse, worker: Worker) -> None:
    """A key that a result releases is claimed in the same transaction, under a larger token."""
    pulse.submit(concurrency_key="k")
    held = worker.run_one()
    following = pulse.submit(concurrency_key="k")
    commits = pulse.session.stats.commits
    _, claimed = pulse.tick(worker.finishing(held), worker.claiming())
    assert pulse.session.stats.commits == commits + 1
    assert [(one.task_id, one.concurrency_token) for one in claimed.assignments] == [(following, 3)]


@pytest.mark.parametrize("end", ["decline", "result"])
def test_messages_about_one_attempt_in_one_tick_are_judged_in_turn(
    pulse: Pulse, worker: Worker, end: str
) -> None:
    """What ends an attempt is judged before a Start in the same tick: the Start is refused, nothing is split."""
    pulse.submit_many(3)
    held, *_ = leased = worker.claim(3)
    task_id = held.task_id
    if end == "result":
        succeeded(worker.start(held))
    commits = pulse.session.stats.commits
    ending = worker.declining(held) if end == "decline" else worker.finishing(held)
    ended, started = pulse.tick(ending, worker.starting(held))
    assert not isinstance(ended, OrbitError)
    assert isinstance(started, StaleAttempt)
    assert pulse.session.stats.commits == commits + 1
    state, used = ("WAITING", 0) if end == "decline" else ("SUCCEEDED", 1)
    assert (pulse.task(task_id).state, pulse.task(task_id).attempts_used) == (state, used)
    assert pulse.usage().leased_unstarted == len(leased) - 1


def test_two_results_of_one_attempt_in_one_tick_count_once(pulse: Pulse, worker: Worker) -> None:
    """The first decides; the same again is a duplicate, another is evidence."""
    task_id = pulse.submit()
    held = worker.run_one()
    first = worker.finishing(held, output=b"1")
    outcomes = pulse.tick(
        first, first, worker.finishing(held, output=b"1"), worker.finishing(held, output=b"2")
    )
    assert [one.disposition for one in outcomes] == [
        Disposition.APPLIED,
        Disposition.DUPLICATE,
        Disposition.DUPLICATE,
        Disposition.LATE,
    ]
    assert pulse.events(task_id) == ["SUCCEEDED"]


def test_a_task_cancelled_in_review_is_a_conflict(pulse: Pulse, worker: Worker) -> None:
    """A task whose effect is unknown needs a review; a cancel can't settle it."""
    task_id = pulse.submit()
    succeeded(worker.finish(worker.run_one(), Outcome.UNKNOWN))
    assert isinstance(pulse.cancel(task_id), StateConflict)
