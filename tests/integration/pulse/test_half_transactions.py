"""C03, C11, C14: a transaction that fails or freezes between any two of its statements leaves nothing of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from orbit.domain.errors import InvariantViolation, StaleAttempt
from orbit.domain.states import Outcome
from orbit.localdb.instance import Instance
from orbit.pulse.expire import Expired, expire, find_expired
from orbit.store.driver import DriverConnection
from orbit.store.dsn import Dsn
from orbit.store.session import Session
from orbit.store.transaction import Tx
from tests.support.eventually import eventually
from tests.support.lockwait import Background, await_waiter
from tests.support.pulse import Pulse, Worker, succeeded
from tests.support.rows import lapse, set_grace
from tests.support.statements import FailBefore, StopBefore, hooked
from tests.support.tenants import QueueLimits, TenantMaker

MANY = 60


@pytest.fixture
def fault() -> FailBefore:
    return FailBefore()


@pytest.fixture
def fragile(dsn: Dsn, pulse: Pulse, fault: FailBefore) -> Iterator[Pulse]:
    """The tenant on a connection that fails where it is told to."""
    session = Session(dsn, connector=hooked(fault))
    yield Pulse(session, pulse.tenant)
    session.close()


def snapshot(pulse: Pulse) -> dict[str, Any]:
    """Everything that a transaction of this tenant could change."""
    application = {"application_id": pulse.tenant.application_id}
    tables = ("tasks", "attempts", "lanes", "receipts", "audits")
    found: dict[str, Any] = {table: pulse.rows(table, **application) for table in tables}
    found["usage"] = pulse.usage()
    found["keys"] = pulse.rows("concurrency_keys", namespace_id=pulse.tenant.namespace_id)
    found["events"] = pulse.rows("result_events", namespace_id=pulse.tenant.namespace_id)
    quota = dict(pulse.quota())
    found["quota"] = (quota["unfinished"], quota["active"])
    return found


def fail_everywhere(pulse: Pulse, fault: FailBefore, act: Callable[[], Any]) -> int:
    """Run `act` with a failure before each of its statements in turn; return how many there were."""
    before = snapshot(pulse)
    for position in range(MANY):
        fault.arm(position)
        outcome = act()
        if fault.struck is None:
            return position
        assert all(isinstance(one, InvariantViolation) for one in outcome), outcome
        assert snapshot(pulse) == before, (
            f"something stayed of a transaction that failed before {fault.struck}"
        )
    raise AssertionError(f"more than {MANY} statements")


@pytest.mark.parametrize("keyed", [False, True], ids=["keyless", "keyed"])
def test_a_claim_is_all_or_nothing_c03(
    pulse: Pulse, fragile: Pulse, fault: FailBefore, worker: Worker, keyed: bool
) -> None:
    """C03: no permit without attempt, no key without holder, no task out of its lane, wherever the claim breaks."""
    pulse.submit(**({"concurrency_key": "k"} if keyed else {}))
    pulse.submit(handler="other")
    command = worker.claiming(2)
    assert fail_everywhere(pulse, fault, lambda: fragile.tick(command)) >= 8
    assert len(pulse.rows("attempts", application_id=pulse.tenant.application_id)) == 1


def test_every_other_step_is_all_or_nothing(
    pulse: Pulse, fragile: Pulse, fault: FailBefore, worker: Worker
) -> None:
    """Submit, Start, result, decline, cancel, promotion: each is one transaction, and one only."""
    command = fragile.command(concurrency_key="k")
    fail_everywhere(pulse, fault, lambda: fragile.submit_each([command]))
    held = worker.claim_one()
    fail_everywhere(pulse, fault, lambda: fragile.tick(worker.declining(held)))
    held = worker.claim_one()
    fail_everywhere(pulse, fault, lambda: fragile.tick(worker.starting(held)))
    fail_everywhere(pulse, fault, lambda: fragile.tick(worker.finishing(held, Outcome.UNKNOWN)))
    waiting = pulse.submit(concurrency_key="k")
    leased = worker.claim_one()
    assert leased.task_id == waiting
    fail_everywhere(pulse, fault, lambda: fragile.cancel_each([pulse.cancellation(waiting)]))


def test_a_thousand_faults_later_all_permits_are_there_c03(
    dsn: Dsn, tenants: TenantMaker, fault: FailBefore
) -> None:
    """C03 scaled: after hundreds of broken steps `max_concurrency` tasks still run side by side."""
    tenant = tenants(limits=QueueLimits(max_concurrency=4))
    session = Session(dsn, connector=hooked(fault))
    pulse = Pulse(session, tenant)
    worker = pulse.worker()
    pulse.submit_many(40)
    for n in range(120):
        fault.arm(n % 17)
        held = pulse.tick(worker.claiming(4))[0]
        fault.arm(1_000)
        for one in () if isinstance(held, InvariantViolation) else held.assignments:
            fault.arm(n % 13)
            pulse.tick(worker.declining(one))
            fault.arm(1_000)
            worker.decline(one)
    fault.arm(1_000)
    assert len(worker.claim(64)) == 4
    session.close()


def short_lived(hook: StopBefore) -> Callable[..., Any]:
    """A connector whose connections the server closes after a second of silence, as it does after eight in earnest."""

    def connector(dsn: Dsn, **options: Any) -> DriverConnection:
        connection: DriverConnection = hooked(hook)(dsn, **options)
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION wait_timeout = 1")
        return connection

    return connector


def expiring(pulse: Pulse, candidates: Expired, session: Session) -> Any:
    return session.run(lambda tx: expire(tx, pulse.tenant.application_id, candidates))


def test_a_recoverer_frozen_between_read_and_write_changes_nothing_c11_c14(
    instance: Instance, dsn: Dsn, pulse: Pulse, worker: Worker
) -> None:
    """C11 C14 F12: frozen inside its transaction; the server frees its locks, another recoverer and a new worker go on,
    and when it wakes it finds nothing to do: the new attempt, its key and its permit are untouched."""
    task_id = pulse.submit(concurrency_key="k")
    held = worker.claim_one()
    lapse(pulse.session, held.attempt_id)
    set_grace(pulse.session)
    candidates = pulse.session.run(lambda tx: find_expired(tx, 1_000_000))[pulse.tenant.application_id]
    assert candidates.attempt_ids == [held.attempt_id]
    stop = StopBefore("UPDATE tasks")
    frozen = Background(dsn, partial(expiring, pulse, candidates), connector=short_lived(stop))
    stop.await_reached()
    other = Background(dsn, partial(expiring, pulse, candidates))
    await_waiter(instance, other.connection, holder=frozen.connection)
    # The recoverer that still lives must be able to judge: recovery beats each second.
    report = eventually(lambda: _beat_until_done(pulse, other), within=10)
    assert report.attempts == 1
    again = worker.run_one()
    assert (again.task_id, again.epoch) == (task_id, 2)
    stop.let_go()
    assert frozen.result().attempts == 0
    assert pulse.attempt(again).state == "RUNNING"
    assert pulse.key("k").holder_attempt_id == again.attempt_id
    succeeded(worker.finish(again))


def _beat_until_done(pulse: Pulse, running: Background) -> Any:
    set_grace(pulse.session)
    return None if running.is_running else running.result()


def test_old_candidates_dont_touch_a_newer_attempt_c11(pulse: Pulse, worker: Worker) -> None:
    """C11: what a recoverer found before another one acted is judged again, by attempt, epoch and state."""
    task_id = pulse.submit(concurrency_key="k")
    first = worker.claim_one()
    lapse(pulse.session, first.attempt_id)
    old = pulse.session.run(lambda tx: find_expired(tx, 1_000_000))[pulse.tenant.application_id]
    assert pulse.expire(first.attempt_id).attempts == 1
    second = worker.run_one()
    assert pulse.expire_in_grace(old).attempts == 0
    assert (pulse.task(task_id).state, pulse.task(task_id).epoch) == ("RUNNING", 2)
    assert pulse.key("k").holder_attempt_id == second.attempt_id


def test_a_renewal_that_comes_first_saves_the_lease(pulse: Pulse, worker: Worker) -> None:
    """A candidate that was renewed meanwhile isn't expired."""
    pulse.submit()
    held = worker.run_one()
    lapse(pulse.session, held.attempt_id)
    old = pulse.session.run(lambda tx: find_expired(tx, 1_000_000))[pulse.tenant.application_id]
    assert worker.renew(held).attempts[0].owned
    assert pulse.expire_in_grace(old).attempts == 0
    succeeded(worker.finish(held))


def test_a_frozen_start_doesnt_commit_after_its_lease_f12(
    instance: Instance, dsn: Dsn, pulse: Pulse, worker: Worker
) -> None:
    """F12: a dispatcher frozen inside a Start's transaction loses its locks; what it commits later is judged anew."""
    pulse.submit(concurrency_key="k")
    held = worker.claim_one()
    command = worker.starting(held)
    stop = StopBefore("UPDATE attempts")
    frozen = Background(
        dsn,
        lambda session: Pulse(session, pulse.tenant).tick(command)[0],
        connector=short_lived(stop),
    )
    stop.await_reached()
    cancelled = Background(dsn, lambda session: Pulse(session, pulse.tenant).cancel(held.task_id))
    await_waiter(instance, cancelled.connection, holder=frozen.connection)
    assert succeeded(cancelled.result()).task.state == "CANCELLED"
    stop.let_go()
    assert frozen.result().code == "CANCELLED"
    assert isinstance(worker.decline(held), StaleAttempt)
    assert pulse.task(held.task_id).attempts_used == 0


def test_the_driver_never_goes_on_after_a_rolled_back_statement(dsn: Dsn, pulse: Pulse) -> None:
    """A failure inside a transaction rolls all of it back: the connection's next user starts with nothing open."""
    session = Session(dsn)

    def work(tx: Tx) -> None:
        tx.execute(
            "UPDATE queue_usage SET unfinished = unfinished + 5 WHERE queue_id = %s", (pulse.tenant.queue_id,)
        )
        tx.execute("SELECT no_such_column FROM queues")

    with pytest.raises(Exception, match="1054"):
        session.run(work)
    session.run(lambda tx: tx.now)
    session.close()
    assert pulse.usage().unfinished == 0
