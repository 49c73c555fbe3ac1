"""C18, C28: each comparison of times one microsecond before, at and after its edge, under a frozen clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from orbit.domain.errors import (
    DeadlineExceeded,
    InvalidArgument,
    OrbitError,
    RateLimited,
    StaleAttempt,
    Unauthenticated,
)
from orbit.domain.retry import RetryPolicy
from orbit.domain.states import Backoff, OnUnknown, Outcome
from orbit.pulse.expire import find_expired
from orbit.pulse.queries import ListTasks, read_tasks
from orbit.store.dsn import Dsn
from orbit.store.sql.probe import select_due
from tests.support.faketime import frozen_at
from tests.support.pulse import Pulse, Worker, pulse_of, repeated, succeeded
from tests.support.rows import MICROSECOND, database_now, set_columns

# Searches look at all applications: a limit that no other test's leftovers reach.
EVERYBODY = 1_000_000
EDGE = [-MICROSECOND, timedelta(), MICROSECOND]
EDGE_NAMES = ["before", "at", "after"]
edges = pytest.mark.parametrize("offset", EDGE, ids=EDGE_NAMES)

At = Callable[[datetime], Pulse]


@pytest.fixture
def at(dsn: Dsn, pulse: Pulse) -> Iterator[At]:
    """Drive the tenant at a moment of the database's time that stands still."""
    with ExitStack() as stack:
        yield lambda moment: stack.enter_context(pulse_of(dsn, pulse.tenant, connector=frozen_at(moment)))


@contextmanager
def refused(kind: type[OrbitError], is_refused: bool) -> Iterator[None]:
    """Expect the refusal, or none."""
    if not is_refused:
        yield
        return
    with pytest.raises(kind):
        yield


@edges
def test_a_lease_ends_at_its_end(pulse: Pulse, worker: Worker, at: At, offset: timedelta) -> None:
    """Expired is <= now, in the search and in the judgement; a Start needs the lease alive."""
    for key in ("start", "expire"):
        pulse.submit(concurrency_key=key)
    to_start, to_expire = worker.claim(2)
    end = database_now(pulse.session) + timedelta(seconds=5)
    set_columns(pulse.session, "attempts", {"lease_expires_at": end}, session_id=worker.session_id)
    now = at(end + offset)
    is_over = offset >= timedelta()
    found = now.session.run(lambda tx: find_expired(tx, EVERYBODY)).get(pulse.tenant.application_id)
    assert (found is not None and to_expire.attempt_id in found.attempt_ids) is is_over
    with refused(StaleAttempt, is_over):
        succeeded(worker.on(now).start(to_start))
    assert now.expire(to_expire.attempt_id).attempts == int(is_over)


@pytest.mark.parametrize("share", [0.98, 1.0, 1.5])
def test_a_result_at_the_leases_end_is_final_c19(pulse: Pulse, worker: Worker, at: At, share: float) -> None:
    """C19: a handler that ends when its lease does, or later but unnoticed: recovery changes nothing afterwards."""
    task_id = pulse.submit(concurrency_key="k")
    held = worker.run_one()
    attempt = pulse.attempt(held)
    end = attempt.lease_expires_at
    moment = attempt.leased_at + (end - attempt.leased_at) * share
    assert succeeded(worker.on(at(moment)).finish(held)).task_state == "SUCCEEDED"
    later = at(end + timedelta(hours=1))
    found = later.session.run(lambda tx: find_expired(tx, EVERYBODY)).get(pulse.tenant.application_id)
    assert found is None or held.attempt_id not in found.attempt_ids
    assert later.expire(held.attempt_id).attempts == 0
    assert (pulse.task(task_id).state, pulse.events(task_id)) == ("SUCCEEDED", ["SUCCEEDED"])
    assert pulse.key("k").last_token == 2, "one claim and one release"


@edges
def test_a_delayed_task_is_due_at_its_time(pulse: Pulse, worker: Worker, at: At, offset: timedelta) -> None:
    """Due is <= now, for the search, the promotion, and the claim of what was promoted too early."""
    task_id = pulse.submit(delay_ms=3_600_000)
    now = at(pulse.task(task_id).available_at + offset)
    is_due = offset >= timedelta()
    found = now.session.run(lambda tx: select_due(tx, tx.now, limit=EVERYBODY))
    assert (task_id in {row.task_id for row in found}) is is_due
    assert now.promote(task_id) == int(is_due)
    if not is_due:
        assert at(pulse.task(task_id).available_at).promote(task_id) == 1
    assert len(worker.on(now).claim()) == int(is_due), "the clock may have stepped back after the promotion"


@edges
@pytest.mark.parametrize("kind", ["start", "total"])
def test_a_deadline_passes_at_its_time(
    pulse: Pulse, worker: Worker, at: At, offset: timedelta, kind: str
) -> None:
    """Passed is <= now: claim, Start and recovery agree to the microsecond."""
    deadline = database_now(pulse.session) + timedelta(minutes=1)
    fields: dict[str, Any] = {"start_deadline_at": deadline} if kind == "start" else {"timeout_ms": 60_000}
    ids = [pulse.submit(handler=name, **fields) for name in ("claimed", "leased", "waiting")]
    if kind == "total":
        for task_id in ids:
            set_columns(
                pulse.session,
                "tasks",
                {"deadline_at": deadline, "unstarted_deadline_at": deadline},
                task_id=task_id,
            )
    leased = worker.claim_one(handlers=(("leased", "1"),), lease_ms=600_000)
    assert pulse.attempt(leased).lease_expires_at == deadline
    set_columns(
        pulse.session,
        "attempts",
        {"lease_expires_at": deadline + timedelta(hours=1)},
        attempt_id=leased.attempt_id,
    )
    now = at(deadline + offset)
    is_past = offset >= timedelta()
    assert len(worker.on(now).claim(handlers=(("claimed", "1"),))) == int(not is_past)
    with refused(DeadlineExceeded, is_past):
        succeeded(worker.on(now).start(leased))
    found = now.session.run(lambda tx: find_expired(tx, EVERYBODY)).get(pulse.tenant.application_id)
    assert (found is not None and ids[2] in found.task_ids) is is_past
    assert now.expire(tasks=[ids[2]]).tasks == int(is_past)


@edges
def test_absolute_times_of_a_submit(pulse: Pulse, at: At, offset: timedelta) -> None:
    """available_at may be now; the start deadline must be after now and after available_at."""
    moment = database_now(pulse.session) + timedelta(hours=1)
    now = at(moment)
    with refused(InvalidArgument, offset < timedelta()):
        task = now.task(now.submit(available_at=moment + offset))
        assert (task.ready, task.due_at) == ((1, None) if not offset else (None, moment + offset))
    with refused(InvalidArgument, offset <= timedelta()):
        now.submit(start_deadline_at=moment + offset)
    later = moment + timedelta(hours=1)
    with refused(InvalidArgument, offset <= timedelta()):
        now.submit(available_at=later, start_deadline_at=later + offset)
    with refused(InvalidArgument, offset > timedelta()):
        now.submit(available_at=moment + timedelta(days=366) + offset)


@edges
def test_past_times_dont_matter_to_a_replay(pulse: Pulse, at: At, offset: timedelta) -> None:
    """A command that was accepted in time gives its receipt for ever, whatever its times are by then."""
    moment = database_now(pulse.session) + timedelta(hours=1)
    command = pulse.command(available_at=moment, start_deadline_at=moment + timedelta(seconds=1))
    first = succeeded(pulse.submit_each([command])[0])
    again = succeeded(at(moment + timedelta(days=1) + offset).submit_each([repeated(command)])[0])
    assert again.deduplicated
    assert again.task == first.task


@edges
def test_a_rate_window_lasts_one_second(pulse: Pulse, worker: Worker, at: At, offset: timedelta) -> None:
    """A Start inside the window counts in it; the first one at or after its end opens the next."""
    pulse.submit_many(2)
    first, second = worker.claim(2)
    succeeded(worker.start(first))
    set_columns(pulse.session, "queues", {"rate_per_second": 1}, queue_id=pulse.tenant.queue_id)
    window = pulse.usage().window_started_at
    now = at(window + timedelta(seconds=1) + offset)
    is_open = offset < timedelta()
    outcome = worker.on(now).start(second)
    if is_open:
        assert isinstance(outcome, RateLimited)
        assert outcome.retry_after_ms == 1
    else:
        succeeded(outcome)
    usage = pulse.usage()
    expected = (window, 1) if is_open else (window + timedelta(seconds=1) + offset, 1)
    assert (usage.window_started_at, usage.window_count) == expected


@edges
def test_a_credential_expires_at_its_time(pulse: Pulse, worker: Worker, at: At, offset: timedelta) -> None:
    """expires_at <= now: neither submits nor claims, in the very same instant."""
    expiry = database_now(pulse.session) + timedelta(minutes=1)
    task_id = pulse.submit()
    set_columns(
        pulse.session, "credentials", {"expires_at": expiry}, credential_id=pulse.tenant.credential_id
    )
    now = at(expiry + offset)
    is_over = offset >= timedelta()
    with refused(Unauthenticated, is_over):
        now.submit()
    assert [one.task_id for one in worker.on(now).claim()] == ([] if is_over else [task_id])


@edges
def test_a_grace_ends_at_its_time(pulse: Pulse, worker: Worker, at: At, offset: timedelta) -> None:
    """No lease is judged while a grace runs; grace_until <= now is over."""
    pulse.submit()
    held = worker.claim_one(lease_ms=1_000)
    moment = pulse.attempt(held).lease_expires_at + timedelta(minutes=1)
    now = at(moment)
    candidates = now.session.run(lambda tx: find_expired(tx, EVERYBODY))[pulse.tenant.application_id]
    is_over = offset <= timedelta()
    expired = now.expire_in_grace(candidates, grace_until=moment + offset)
    assert expired.attempts == int(is_over)


@edges
def test_listing_from_is_inclusive_and_before_is_exclusive(pulse: Pulse, offset: timedelta) -> None:
    """created_from <= created_at < created_before."""
    task_id = pulse.submit()
    edge = pulse.task(task_id).created_at + offset

    def listed(**filters: Any) -> bool:
        query = ListTasks(queue_id=pulse.tenant.queue_id, limit=10, **filters)
        page = pulse.session.run(lambda tx: read_tasks(tx, pulse.tenant.token, query))
        return [task.task_id for task in page.items] == [task_id]

    assert listed(created_from=edge) is (offset <= timedelta())
    assert listed(created_before=edge) is (offset > timedelta())


@edges
def test_a_retry_must_end_before_the_total_deadline(
    pulse: Pulse, worker: Worker, at: At, offset: timedelta
) -> None:
    """C28: a delay that ends at the deadline or later fails the task now; one microsecond earlier it waits."""
    policy = RetryPolicy(max_attempts=5, backoff=Backoff.FIXED, initial_ms=1, max_ms=1)
    task_id = pulse.submit(retry=policy, timeout_ms=60_000)
    held = worker.run_one()
    deadline = pulse.task(task_id).deadline_at
    assert deadline is not None
    now = at(deadline - timedelta(milliseconds=20_000) + offset)
    outcome = succeeded(worker.on(now).finish(held, Outcome.RETRY, retry_after_ms=20_000))
    assert outcome.task_state == ("WAITING" if offset < timedelta() else "FAILED")
    task = pulse.task(task_id)
    if offset < timedelta():
        assert task.due_at == deadline + offset
    else:
        assert (task.due_at, task.error_code) == (None, "DEADLINE_EXCEEDED")


@pytest.mark.parametrize("backoff", Backoff)
@pytest.mark.parametrize(
    ("initial_ms", "max_ms"), [(2_592_000_000, 2_592_000_000), (0, 1_000), (5_000, 1_000)]
)
def test_delays_stay_within_their_bounds_up_to_the_last_attempt(
    pulse: Pulse, worker: Worker, backoff: Backoff, initial_ms: int, max_ms: int
) -> None:
    """C28: with the most attempts and the largest base, 0 <= delay <= cap at each; nothing overflows."""
    policy = RetryPolicy(max_attempts=100, backoff=backoff, initial_ms=initial_ms, max_ms=max_ms)
    task_id = pulse.submit(retry=policy, on_unknown=OnUnknown.RETRY)
    for used in (1, 2, 31, 32, 63, 64, 99, 100):
        set_columns(pulse.session, "tasks", {"attempts_used": used - 1}, task_id=task_id)
        held = worker.run_one()
        outcome = succeeded(worker.finish(held, Outcome.RETRY if used % 2 else Outcome.UNKNOWN))
        task, ended_at = pulse.task(task_id), pulse.attempt(held).ended_at
        if used == 100:
            assert outcome.task_state == ("FAILED" if used % 2 else "NEEDS_REVIEW")
            break
        assert timedelta() <= task.available_at - ended_at <= timedelta(milliseconds=max_ms)
        ready = {"available_at": ended_at, "due_at": ended_at, "ready": None}
        if task.due_at is not None:
            set_columns(pulse.session, "tasks", ready, task_id=task_id)
            assert pulse.promote(task_id) == 1
    # The Starts that were skipped have no attempts: make the books right for the checker.
    used = len([row for row in pulse.rows("attempts", task_id=task_id) if row.started_at])
    set_columns(pulse.session, "tasks", {"attempts_used": used}, task_id=task_id)


def test_frozen_times_survive_a_full_stop(pulse: Pulse, at: At, worker: Worker) -> None:
    """After any pause of the whole system, delays, backoffs and deadlines are what they were."""
    policy = RetryPolicy(max_attempts=3, backoff=Backoff.FIXED, initial_ms=60_000, max_ms=60_000)
    waiting = pulse.submit(delay_ms=60_000, timeout_ms=600_000)
    retried = pulse.submit(retry=policy)
    succeeded(worker.finish(worker.run_one(), Outcome.RETRY))
    before = [pulse.task(waiting), pulse.task(retried)]
    later = at(database_now(pulse.session) + timedelta(days=30))
    assert later.promote(waiting, retried) == 2
    for task in before:
        assert pulse.task(task.task_id).available_at == task.available_at
        assert pulse.task(task.task_id).deadline_at == task.deadline_at
