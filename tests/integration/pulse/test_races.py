"""Commands that meet: one wins, the other sees it; proven by watching the loser wait for the winner's lock."""

from __future__ import annotations

import random
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from orbit.domain.errors import (
    CancelRequested,
    IdempotencyConflict,
    OrbitError,
    QueueFull,
    QueuePaused,
    StateConflict,
)
from orbit.domain.ids import new_id
from orbit.domain.states import Disposition, Outcome
from orbit.localdb.instance import Instance
from orbit.pulse.commands import Assignment, ConfigureQueue, TaskAnswer
from orbit.pulse.queues import configure_queues
from orbit.store.dsn import Dsn
from orbit.store.session import Session
from tests.support.lockwait import Background, await_waiter, await_waiters, holding_application, waits
from tests.support.pulse import Pulse, Worker, succeeded
from tests.support.rows import lapse, set_columns
from tests.support.tenants import QueueLimits, TenantMaker, make_queue
from tests.support.threads import Pulses, together

TERMINAL = {"SUCCEEDED", "FAILED", "CANCELLED"}


def test_fifty_submits_under_one_key_f38(instance: Instance, dsn: Dsn, pulse: Pulse) -> None:
    """F38 C22: one first, same content deduplicated, other content refused; even when a waiter's connection dies."""
    key = secrets.token_hex(8)
    commands = [
        pulse.command(idempotency_key=key, payload=b"1" if n % 2 else b"2", task_id=new_id())
        for n in range(50)
    ]
    with holding_application(dsn, pulse.tenant.application_id):
        running = [
            Background(dsn, lambda session, one=one: Pulse(session, pulse.tenant).submit_each([one])[0])  # type: ignore[misc]
            for one in commands
        ]
        await_waiters(instance, 50)
        victim = running[0].connection
        instance.execute(f"KILL {victim}")
    answers = [one.result() for one in running]
    firsts = [answer for answer in answers if isinstance(answer, TaskAnswer) and not answer.deduplicated]
    assert len(firsts) == 1
    winner = next(n for n, answer in enumerate(answers) if answer is firsts[0])
    for n, answer in enumerate(answers):
        if n % 2 == winner % 2:
            assert isinstance(answer, TaskAnswer)
            assert answer.task == firsts[0].task
        else:
            assert isinstance(answer, IdempotencyConflict)
    assert len(pulse.rows("tasks", application_id=pulse.tenant.application_id)) == 1


def test_the_backlog_never_exceeds_its_limit_f39(dsn: Dsn, tenants: TenantMaker) -> None:
    """F39: submits, cancels and results at the edge of ten places: never more, and each is freed once."""
    tenant = tenants(limits=QueueLimits(max_unfinished_tasks=10))
    refused: list[Any] = []
    peak: list[int] = []

    def submit(pulse: Pulse) -> None:
        for _ in range(12):
            command = pulse.command()
            answer = pulse.submit_each([command])[0]
            if isinstance(answer, OrbitError):
                assert isinstance(answer, QueueFull)
                assert answer.retry_after_ms
                refused.append(command)

    def consume(pulse: Pulse) -> None:
        worker = pulse.worker()
        for _ in range(12):
            for held in worker.claim(2):
                started = worker.start(held)
                if isinstance(started, OrbitError):
                    assert isinstance(started, CancelRequested)
                else:
                    succeeded(worker.finish(held))
            peak.append(pulse.usage().unfinished)

    def cancel(pulse: Pulse) -> None:
        for _ in range(12):
            waiting = pulse.rows("tasks", queue_id=tenant.queue_id, state="WAITING")
            for task in waiting[:2]:
                answer = pulse.cancel(task.task_id)
                assert isinstance(answer, TaskAnswer | StateConflict)

    with Pulses(dsn, tenant, 8) as pulses:
        roles = [submit, submit, submit, submit, submit, consume, consume, cancel]
        together([partial(role, pulse) for role, pulse in zip(roles, pulses, strict=True)])
        pulse = pulses[0]
        assert max(peak) <= 10
        assert refused
        left = pulse.usage().unfinished
        answers = pulse.submit_each(refused[:12])
        assert sum(isinstance(answer, TaskAnswer) for answer in answers) == min(10 - left, len(answers))


def raced(
    instance: Instance, dsn: Dsn, pulse: Pulse, first: Callable[[Pulse], Any], second: Callable[[Pulse], Any]
) -> tuple[Any, Any]:
    """Let both commands queue for the application's lock, seen waiting in this order, then let them go."""
    with holding_application(dsn, pulse.tenant.application_id) as holder:
        running = []
        for act in (first, second):
            one = Background(dsn, lambda session, act=act: act(Pulse(session, pulse.tenant)))  # type: ignore[misc]
            await_waiter(instance, one.connection)
            running.append(one)
        assert {holder} <= {pair[1] for pair in waits(instance)}
        assert all(one.is_running for one in running)
    return running[0].result(), running[1].result()


RIVALS = ["result", "start", "expiry", "decline", "retry"]


def rival(pulse: Pulse, worker: Worker, name: str) -> tuple[Assignment, Callable[[Pulse], Any]]:
    """Bring a task to where the rival of a cancel can act, and return that act."""
    held = worker.claim_one()
    if name in ("result", "retry", "expiry"):
        succeeded(worker.start(held))
    if name == "expiry":
        lapse(pulse.session, held.attempt_id)
        return held, lambda other: other.expire(held.attempt_id)
    if name == "retry":
        return held, lambda other: worker.on(other).finish(held, Outcome.RETRY)
    act = {"result": "finish", "start": "start", "decline": "decline"}[name]
    return held, lambda other: getattr(worker.on(other), act)(held)


@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.parametrize("cancel_first", [True, False])
def test_cancel_races_f41(
    instance: Instance, dsn: Dsn, pulse: Pulse, worker: Worker, name: str, cancel_first: bool
) -> None:
    """F41: whoever holds the lock decides; one event at most, permits and key freed once, the other is told."""
    task_id = pulse.submit(concurrency_key="k")
    held, act = rival(pulse, worker, name)
    order = [lambda other: other.cancel(task_id), act]
    if not cancel_first:
        order.reverse()
    raced(instance, dsn, pulse, order[0], order[1])
    check_settled(pulse, worker, task_id, held)


def check_settled(pulse: Pulse, worker: Worker, task_id: bytes, held: Assignment) -> None:
    """Whatever came first, the task stands in one legal state with its books in order; run it to its end."""
    task = pulse.task(task_id)
    events = pulse.events(task_id)
    if task.state == "RUNNING":
        assert events == []
        assert task.cancel_requested_at is not None
        assert worker.renew(held).attempts[0].cancel_requested
        succeeded(worker.finish(held, Outcome.RETRY))
        task, events = pulse.task(task_id), pulse.events(task_id)
    assert task.state in TERMINAL | {"NEEDS_REVIEW"}
    assert events == [task.state]
    assert pulse.key("k").holder_attempt_id is None
    assert pulse.usage().active == pulse.usage().leased_unstarted == 0
    assert worker.claim(8) == ()


@pytest.mark.parametrize("name", ["result", "start", "expiry"])
def test_cancel_races_let_loose_f41_c37(dsn: Dsn, pulse: Pulse, worker: Worker, name: str) -> None:
    """The same without a referee, 25 rounds: no order of arrival finds a gap."""
    with Pulses(dsn, pulse.tenant, 2) as (one, other):
        for _ in range(25):
            task_id = pulse.submit(concurrency_key="k")
            held, act = rival(pulse, worker, name)
            together([partial(one.cancel, task_id), partial(act, other)])
            check_settled(pulse, worker, task_id, held)


def test_cancel_races_the_claim_c37(dsn: Dsn, pulse: Pulse, worker: Worker) -> None:
    """Cancel against claim and Start in one go: CANCELLED unstarted, or an intent on what runs; never both."""
    with Pulses(dsn, pulse.tenant, 2) as (one, other):
        rival_worker = worker.on(other)
        for _ in range(25):
            task_id = pulse.submit(concurrency_key="k")

            def claim_and_start() -> tuple[Assignment, ...]:
                held = rival_worker.claim()
                for assignment in held:
                    rival_worker.start(assignment)
                return held

            acts: list[Callable[[], Any]] = [partial(one.cancel, task_id), claim_and_start]
            _, held = together(acts)
            state = pulse.task(task_id).state
            if held and state == "RUNNING":
                check_settled(pulse, worker, task_id, held[0])
            else:
                assert (state, pulse.events(task_id)) == ("CANCELLED", ["CANCELLED"])


def test_a_key_released_while_another_task_for_it_arrives_c02(dsn: Dsn, pulse: Pulse, worker: Worker) -> None:
    """C02: a keyed task submitted in the very moment of the release is claimable at once, 40 rounds, no waiting."""
    with Pulses(dsn, pulse.tenant, 2) as (one, other):
        finisher = worker.on(one)
        pulse.submit(concurrency_key="k")
        held = worker.run_one()
        for _ in range(40):
            command = other.command(concurrency_key="k")
            together([partial(finisher.finish, held), partial(other.submit_each, [command])])
            held = worker.run_one()
            assert held.task_id == command.task_id


def test_a_result_meets_the_expiry_c19(dsn: Dsn, pulse: Pulse, worker: Worker) -> None:
    """C19: 40 rounds on a lease that has just ended: the first decides, the other moves nothing."""
    with Pulses(dsn, pulse.tenant, 2) as (one, other):
        finisher = worker.on(one)
        for _ in range(40):
            task_id = pulse.submit(concurrency_key="k")
            held = worker.run_one()
            lapse(pulse.session, held.attempt_id)
            finished, report = together(
                [partial(finisher.finish, held), partial(other.expire, held.attempt_id)]
            )
            is_first = not isinstance(finished, OrbitError) and finished.disposition is Disposition.APPLIED
            assert report.attempts == int(not is_first)
            assert pulse.events(task_id) == ["SUCCEEDED" if is_first else "NEEDS_REVIEW"]
            assert other.expire(held.attempt_id).attempts == 0
    assert pulse.usage().active == 0
    assert pulse.key("k").last_token == 80, "one claim and one release a round"


def test_no_claim_and_no_start_after_a_pause_f40(dsn: Dsn, pulse: Pulse) -> None:
    """F40 C38: everything claimed or started was so before the pause committed; results still count."""
    pulse.submit_many(200)

    def work(own: Pulse) -> list[Assignment]:
        worker, started = own.worker(), []
        while True:
            held = worker.claim(4)
            for one, outcome in zip(held, own.tick(*map(worker.starting, held)), strict=True):
                if isinstance(outcome, OrbitError):
                    assert isinstance(outcome, QueuePaused)
                    continue
                started.append((worker, one))
            if pulse_paused(own):
                assert worker.claim(4) == ()
                for starter, one in started:
                    assert succeeded(starter.finish(one)).disposition is Disposition.APPLIED
                return [one for _, one in started]

    def pause(own: Pulse) -> list[Assignment]:
        while own.usage().active < 20:
            pass
        succeeded(configure(own, paused=True))
        return []

    with Pulses(dsn, pulse.tenant, 4) as pulses:
        together([*(partial(work, own) for own in pulses[:3]), partial(pause, pulses[3])])
    queue = pulse.row("queues", queue_id=pulse.tenant.queue_id)
    attempts = pulse.rows("attempts", queue_id=pulse.tenant.queue_id)
    assert attempts
    assert all(row.leased_at < queue.updated_at for row in attempts)
    assert all(row.started_at < queue.updated_at for row in attempts if row.started_at)


def pulse_paused(pulse: Pulse) -> bool:
    return bool(pulse.row("queues", queue_id=pulse.tenant.queue_id).paused)


def configure(pulse: Pulse, *, paused: bool) -> Any:
    queue = pulse.row("queues", queue_id=pulse.tenant.queue_id)
    command = ConfigureQueue(
        token=pulse.tenant.token,
        idempotency_key=secrets.token_hex(8),
        queue_id=queue.queue_id,
        expected_revision=queue.revision,
        reason="test",
        paused=paused,
        max_concurrency=queue.max_concurrency,
        rate_per_second=queue.rate_per_second,
        max_unfinished_tasks=queue.max_unfinished_tasks,
    )
    application_id = pulse.tenant.application_id
    return pulse.session.run_group(lambda tx, cmds: configure_queues(tx, application_id, cmds), [command])[0]


def test_two_configurations_of_one_revision(dsn: Dsn, pulse: Pulse) -> None:
    """One wins, the other is told that the revision has gone by."""
    with Pulses(dsn, pulse.tenant, 6) as pulses:
        outcomes = together([partial(configure, own, paused=bool(n % 2)) for n, own in enumerate(pulses)])
    revision = pulse.row("queues", queue_id=pulse.tenant.queue_id).revision
    won = [one for one in outcomes if not isinstance(one, OrbitError)]
    assert revision == 1 + len(won)
    assert all(isinstance(one, StateConflict) for one in outcomes if isinstance(one, OrbitError))


def test_many_ends_at_once_are_numbered_without_gaps_c20(dsn: Dsn, pulse: Pulse, worker: Worker) -> None:
    """C20: 16 results of one namespace in one moment, in several queues, 8 rounds: contiguous, nobody retries."""
    tenant = pulse.tenant
    queues = [make_queue(pulse.session, tenant.application_id, tenant.namespace_id) for _ in range(3)] + [
        tenant.queue_id
    ]
    with Pulses(dsn, tenant, 16) as pulses:
        for _ in range(8):
            for n in range(16):
                pulse.submit(queue_id=queues[n % 4])
            held = worker.claim(16, queue_ids=tuple(queues))
            assert len(held) == 16
            for outcome in pulse.tick(*map(worker.starting, held)):
                succeeded(outcome)
            acts = [partial(worker.on(own).finish, one) for own, one in zip(pulses, held, strict=True)]
            assert {succeeded(outcome).disposition for outcome in together(acts)} == {Disposition.APPLIED}
        assert sum(own.session.stats.deadlocks + own.session.stats.lock_timeouts for own in pulses) == 0
    events = pulse.rows("result_events", namespace_id=tenant.namespace_id)
    assert sorted(row.sequence for row in events) == list(range(1, 8 * 16 + 1))


def test_two_claimers_never_share_a_task(dsn: Dsn, pulse: Pulse) -> None:
    """C18: fast rivals on one backlog get each task once, whatever the keys."""
    for n in range(80):
        pulse.submit(**({"concurrency_key": f"k{n % 7}"} if n % 2 else {}))

    def drain(own: Pulse) -> list[bytes]:
        worker, done, idle = own.worker(), [], 0
        while idle < 5:
            held = worker.claim(random.randint(1, 5))
            idle = 0 if held else idle + 1
            for one in held:
                succeeded(worker.start(one))
                succeeded(worker.finish(one))
                done.append(one.task_id)
        return done

    with Pulses(dsn, pulse.tenant, 4) as pulses:
        done = [task_id for part in together([partial(drain, own) for own in pulses]) for task_id in part]
    left = worker_drain(pulse)
    assert set(Counter(done + left).values()) == {1}
    assert len(done + left) == 80


def worker_drain(pulse: Pulse) -> list[bytes]:
    """Take what the rivals left when they stopped."""
    worker, done = pulse.worker(), []
    while held := worker.claim(8):
        for one in held:
            succeeded(worker.start(one))
            succeeded(worker.finish(one))
            done.append(one.task_id)
    return done


def test_an_application_that_is_held_delays_but_harms_nothing_f27(
    instance: Instance, dsn: Dsn, pulse: Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F27: a lock that isn't let go gives a retryable refusal with nothing half done; the same key succeeds later."""
    monkeypatch.setattr("orbit.store.session.CONTENTION_BUDGET_SECONDS", 0.5)
    command = replace(pulse.command(), task_id=new_id())
    with holding_application(dsn, pulse.tenant.application_id):
        impatient = Background(dsn, partial(impatiently, pulse, command))
        await_waiter(instance, impatient.connection)
        answer = impatient.result()
    assert isinstance(answer, OrbitError)
    assert (answer.code, answer.retry_after_ms) == ("UNAVAILABLE", 1_000)
    assert pulse.rows("receipts", application_id=pulse.tenant.application_id) == []
    assert succeeded(pulse.submit_each([command])[0]).task.task_id == command.task_id


def impatiently(pulse: Pulse, command: Any, session: Session) -> Any:
    session.run(lambda tx: tx.execute("SET SESSION innodb_lock_wait_timeout = 1"))
    return Pulse(session, pulse.tenant).submit_each([command])[0]


def test_renewals_dont_wait_for_a_busy_application(dsn: Dsn, pulse: Pulse, worker: Worker) -> None:
    """Renewal takes no application lock: it goes through while the lock is held by somebody else."""
    pulse.submit()
    held = worker.run_one()
    with holding_application(dsn, pulse.tenant.application_id):
        assert worker.renew(held).attempts[0].owned
    set_columns(pulse.session, "queues", {"paused": 0}, queue_id=pulse.tenant.queue_id)
