"""F2-F8: a COMMIT, or its answer, is lost; the same list run again finds out what happened, and does nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from orbit.domain.errors import OutcomeUnknown
from orbit.domain.retry import RetryPolicy
from orbit.domain.states import Backoff, Disposition, Outcome, TaskState
from orbit.pulse.commands import Claimed, Declined, Recorded, Started
from orbit.store import session as runner
from orbit.store.connection import connect
from orbit.store.dsn import Dsn
from orbit.store.session import Session
from tests.support.commitproxy import CommitProxy, Loss, inserts, writes
from tests.support.pulse import Pulse, Worker, repeated, succeeded
from tests.support.rows import database_now, lapse, set_columns

HANG_SECONDS = 0.4


@pytest.fixture(scope="module")
def proxy(dsn: Dsn) -> Iterator[CommitProxy]:
    with CommitProxy(dsn) as opened:
        yield opened


@pytest.fixture
def lossy(proxy: CommitProxy, pulse: Pulse) -> Iterator[Pulse]:
    """The test's tenant behind the proxy; `pulse` looks at the database directly."""
    proxy.losses.clear()
    session = Session(proxy.dsn, connector=partial(connect, read_timeout=HANG_SECONDS))
    yield Pulse(session, pulse.tenant)
    proxy.disarm()
    session.close()


def was_lost(proxy: CommitProxy, lossy: Pulse, loss: Loss) -> None:
    """The fault really struck, once, and the runner took the COMMIT for unknown."""
    assert [lost.loss for lost in proxy.await_losses()] == [loss]
    assert lossy.session.stats.unknown_commits == 1
    assert lossy.session.stats.lost_connections >= 1


@pytest.mark.parametrize("loss", Loss)
def test_submit_f2_f3_f4(loss: Loss, proxy: CommitProxy, lossy: Pulse, pulse: Pulse) -> None:
    """F2 F3 F4: one task, one receipt, the first answer; the client's own repeat is deduplicated."""
    commands = [lossy.command(concurrency_key="k"), lossy.command(delay_ms=60_000)]
    proxy.arm(loss, when=inserts("tasks"))
    answers = [succeeded(answer) for answer in lossy.submit_each(commands)]
    was_lost(proxy, lossy, loss)
    assert [answer.deduplicated for answer in answers] == [False, False]
    assert [answer.task.task_id for answer in answers] == [command.task_id for command in commands]
    assert len(pulse.rows("tasks", application_id=pulse.tenant.application_id)) == 2
    assert len(pulse.rows("receipts", application_id=pulse.tenant.application_id)) == 2
    again = [succeeded(answer) for answer in pulse.submit_each([repeated(command) for command in commands])]
    assert [answer.deduplicated for answer in again] == [True, True]
    assert [answer.task for answer in again] == [answer.task for answer in answers]
    assert pulse.usage().unfinished == 2


@pytest.mark.parametrize("loss", Loss)
def test_claim_f5(loss: Loss, proxy: CommitProxy, lossy: Pulse, pulse: Pulse, worker: Worker) -> None:
    """F5: each task is LEASED once, under one of the candidate ids, and the answer names exactly those."""
    pulse.submit_many(3, handler="plain")
    pulse.submit_many(2, concurrency_key="k")
    command = worker.on(lossy).claiming(8, handlers=(("plain", "1"), ("work", "1")))
    proxy.arm(loss, when=inserts("attempts"))
    claimed: Claimed = succeeded(lossy.tick(command)[0])
    was_lost(proxy, lossy, loss)
    stored = pulse.rows("attempts", application_id=pulse.tenant.application_id)
    assert len(claimed.assignments) == len(stored) == 4
    assert {one.attempt_id for one in claimed.assignments} == {row.attempt_id for row in stored}
    assert {row.attempt_id for row in stored} <= set(command.attempt_ids)
    assert pulse.usage().active == 4
    for one in claimed.assignments:
        assert succeeded(worker.start(one))


@pytest.mark.parametrize("loss", Loss)
def test_start_f6(loss: Loss, proxy: CommitProxy, lossy: Pulse, pulse: Pulse, worker: Worker) -> None:
    """F6: one grant, the rate window counts one Start, the same message id gets the same grant again."""
    task_id = pulse.submit(attempt_timeout_ms=60_000)
    held = worker.claim_one()
    command = worker.starting(held)
    proxy.arm(loss, when=writes("attempts"))
    granted: Started = succeeded(lossy.tick(command)[0])
    was_lost(proxy, lossy, loss)
    assert granted.deadline_ms is not None
    attempt, task = pulse.attempt(held), pulse.task(task_id)
    assert (attempt.state, task.attempts_used) == ("RUNNING", 1)
    again: Started = succeeded(pulse.tick(command)[0])
    assert pulse.attempt(held) == attempt
    assert again.deadline_ms is not None
    assert again.deadline_ms <= granted.deadline_ms
    assert (pulse.usage().window_count, pulse.usage().leased_unstarted) == (1, 0)


@pytest.mark.parametrize("loss", Loss)
def test_result_f7(loss: Loss, proxy: CommitProxy, lossy: Pulse, pulse: Pulse, worker: Worker) -> None:
    """F7: APPLIED once, one event, counters down once; the worker's own repeat is a duplicate."""
    task_id = pulse.submit(concurrency_key="k")
    command = worker.finishing(worker.run_one(), output=b"[1]")
    proxy.arm(loss, when=writes("attempts"))
    assert lossy.tick(command) == [Recorded(task_state=TaskState.SUCCEEDED, disposition=Disposition.APPLIED)]
    was_lost(proxy, lossy, loss)
    assert pulse.tick(command) == [
        Recorded(task_state=TaskState.SUCCEEDED, disposition=Disposition.DUPLICATE)
    ]
    assert pulse.events(task_id) == ["SUCCEEDED"]
    assert (pulse.usage().unfinished, pulse.quota().active) == (0, 0)
    assert pulse.key("k").last_token == 2


@pytest.mark.parametrize("loss", [Loss.BEFORE, Loss.AFTER])
def test_retryable_result_draws_its_jitter_once(
    loss: Loss, proxy: CommitProxy, lossy: Pulse, pulse: Pulse, worker: Worker
) -> None:
    """A result that sends the task back waits for the backoff that was stored, not for one drawn again."""
    policy = RetryPolicy(max_attempts=3, backoff=Backoff.FIXED, initial_ms=60_000, max_ms=60_000)
    task_id = pulse.submit(retry=policy)
    command = worker.finishing(worker.run_one(), Outcome.RETRY)
    proxy.arm(loss, when=writes("attempts"))
    assert succeeded(lossy.tick(command)[0]).disposition is Disposition.APPLIED
    was_lost(proxy, lossy, loss)
    before = pulse.task(task_id)
    assert succeeded(pulse.tick(command)[0]).disposition is Disposition.DUPLICATE
    assert pulse.task(task_id) == before
    assert before.attempts_used == 1


@pytest.mark.parametrize("loss", Loss)
def test_decline(loss: Loss, proxy: CommitProxy, lossy: Pulse, pulse: Pulse, worker: Worker) -> None:
    """A decline releases once; its repeat is answered alike."""
    task_id = pulse.submit(concurrency_key="k")
    command = worker.declining(worker.claim_one())
    proxy.arm(loss, when=writes("attempts"))
    assert lossy.tick(command) == [Declined()]
    was_lost(proxy, lossy, loss)
    assert pulse.tick(command) == [Declined()]
    assert (pulse.task(task_id).state, pulse.key("k").last_token, pulse.usage().active) == ("WAITING", 2, 0)


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("state", ["WAITING", "LEASED", "RUNNING"])
def test_cancel(
    loss: Loss, state: str, proxy: CommitProxy, lossy: Pulse, pulse: Pulse, worker: Worker
) -> None:
    """A cancel happens once: one receipt, one audit, one event at most; the repeat shows the same."""
    task_id = pulse.submit()
    if state != "WAITING":
        held = worker.claim_one()
        if state == "RUNNING":
            succeeded(worker.start(held))
    command = pulse.cancellation(task_id)
    proxy.arm(loss, when=inserts("audits"))
    answer = succeeded(lossy.cancel_each([command])[0])
    was_lost(proxy, lossy, loss)
    assert not answer.deduplicated
    again = succeeded(pulse.cancel_each([command])[0])
    assert again.deduplicated
    assert again.task == answer.task
    assert len(pulse.rows("audits", resource_id=task_id)) == 1
    assert pulse.events(task_id) == ([] if state == "RUNNING" else ["CANCELLED"])


@pytest.mark.parametrize("loss", Loss)
def test_expiry_f8(loss: Loss, proxy: CommitProxy, lossy: Pulse, pulse: Pulse, worker: Worker) -> None:
    """F8: the second pass is a no-op; permits and keys are released once, no attempt is counted twice."""
    unstarted, started = pulse.submit(concurrency_key="a"), pulse.submit(concurrency_key="b", handler="b")
    leased = worker.claim_one()
    running = worker.run_one(handlers=(("b", "1"),))
    for held in (leased, running):
        lapse(pulse.session, held.attempt_id)
    proxy.arm(loss, when=writes("attempts"))
    lossy.expire(leased.attempt_id, running.attempt_id)
    was_lost(proxy, lossy, loss)
    assert (pulse.task(unstarted).state, pulse.task(unstarted).attempts_used) == ("WAITING", 0)
    assert (pulse.task(started).state, pulse.task(started).attempts_used) == ("NEEDS_REVIEW", 1)
    assert pulse.expire(leased.attempt_id, running.attempt_id).attempts == 0
    assert [pulse.key(key).last_token for key in "ab"] == [2, 2]
    assert pulse.events(started) == ["NEEDS_REVIEW"]


@pytest.mark.parametrize("loss", [Loss.BEFORE, Loss.AFTER])
def test_promotion_renewal_and_resume(
    loss: Loss, proxy: CommitProxy, lossy: Pulse, pulse: Pulse, worker: Worker
) -> None:
    """What has no receipt is safe to run again: promotion, renewal, resume."""
    delayed, _ = pulse.submit(delay_ms=3_600_000), pulse.submit(concurrency_key="k")
    due = database_now(pulse.session)
    set_columns(pulse.session, "tasks", {"available_at": due, "due_at": due}, task_id=delayed)
    proxy.arm(loss, when=writes("lanes"))
    lossy.promote(delayed)
    was_lost(proxy, lossy, loss)
    assert (pulse.task(delayed).ready, pulse.task(delayed).revision) == (1, 2)
    held = worker.claim_one()
    for act in (worker.on(lossy).renew, worker.on(lossy).resume):
        proxy.arm(loss, when=writes("attempts"))
        assert act(held).attempts[0].owned
    assert len(proxy.await_losses(3)) == 3


@pytest.mark.parametrize("loss", Loss)
def test_a_whole_tick(loss: Loss, proxy: CommitProxy, lossy: Pulse, pulse: Pulse, worker: Worker) -> None:
    """Everything that one tick did comes out of the second run as if it had been the first."""
    pulse.submit(concurrency_key="hot")
    done = worker.run_one()
    pulse.submit_many(2, handler="b")
    declined, started = worker.claim(2, handlers=(("b", "1"),))
    following = pulse.submit(concurrency_key="hot")
    proxy.arm(loss, when=inserts("result_events"))
    result, hand_back, granted, claimed = lossy.tick(
        worker.finishing(done), worker.declining(declined), worker.starting(started), worker.claiming(4)
    )
    was_lost(proxy, lossy, loss)
    assert result.disposition is Disposition.APPLIED
    assert hand_back == Declined()
    assert isinstance(granted, Started)
    assert [one.task_id for one in claimed.assignments] == [following]
    assert pulse.attempt(claimed.assignments[0]).concurrency_token == 3
    assert pulse.usage().window_count == 2


def test_the_resolution_is_itself_lost(proxy: CommitProxy, lossy: Pulse, pulse: Pulse) -> None:
    """Losing the answer several times in a row changes nothing."""
    proxy.arm(Loss.AFTER, times=3)
    task_id = lossy.submit()
    assert len(proxy.await_losses(3)) == 3
    assert [row.task_id for row in pulse.rows("tasks", application_id=pulse.tenant.application_id)] == [
        task_id
    ]


@pytest.mark.parametrize("is_committed", [False, True])
def test_no_answer_in_time_is_unknown_and_the_same_key_resolves_it(
    is_committed: bool,
    proxy: CommitProxy,
    lossy: Pulse,
    pulse: Pulse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When the database stays away the caller hears UNKNOWN; repeating the identity tells, committed or not."""
    monkeypatch.setattr(runner, "UNKNOWN_BUDGET_SECONDS", 0.5)
    command = lossy.command()
    went_away = threading_away(proxy)
    proxy.arm(Loss.AFTER if is_committed else Loss.BEFORE, when=went_away)
    answer = lossy.submit_each([command])[0]
    assert isinstance(answer, OutcomeUnknown)
    assert answer.retry_after_ms
    proxy.accept()
    resolved = succeeded(lossy.submit_each([repeated(command)])[0])
    assert resolved.deduplicated is is_committed
    assert len(pulse.rows("tasks", application_id=pulse.tenant.application_id)) == 1


def threading_away(proxy: CommitProxy) -> Callable[[Any], bool]:
    """Return a condition that is always true, and lets nobody connect from then on."""

    def condition(_: Any) -> bool:
        listener = proxy._listener
        proxy._listener = None
        assert listener is not None
        listener.shutdown(2)
        listener.close()
        return True

    return condition


def test_a_failed_commit_is_no_lost_one(proxy: CommitProxy, lossy: Pulse, pulse: Pulse) -> None:
    """The proxy counts what it lets through: without a fault nothing is lost and nothing reruns."""
    before = proxy.commits
    lossy.submit()
    assert proxy.commits == before + 1
    assert proxy.losses == []
    assert lossy.session.stats.unknown_commits == 0
