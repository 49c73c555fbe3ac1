"""What a probe sees, why a queue is blocked, and what looking costs."""

from __future__ import annotations

from datetime import datetime

from orbit.domain.keys import handler_digest
from orbit.pulse.probe import Block, Probed, Wanted, cancelled_attempts, probe
from orbit.store.session import Session
from orbit.store.transaction import Tx
from tests.support.pulse import HANDLER, Pulse
from tests.support.rows import set_columns
from tests.support.tenants import QueueLimits, TenantMaker, make_queue

DIGEST = handler_digest(*HANDLER)


def look(pulse: Pulse, *, keyed: bool = True) -> Probed:
    pair = (pulse.tenant.queue_id, DIGEST)
    wanted = Wanted(keyed=(pair,)) if keyed else Wanted(keyless=(pair,))
    return pulse.session.run(lambda tx: probe(tx, wanted))


def sees(pulse: Pulse, *, keyed: bool = True) -> bool:
    found = look(pulse, keyed=keyed)
    return (pulse.tenant.queue_id, DIGEST) in (found.keyed if keyed else found.keyless)


def test_ready_work_is_seen_by_those_who_can_take_it(pulse: Pulse) -> None:
    """Keyless work by everybody, keyed work by workers with keys, occupied keys by nobody."""
    assert not sees(pulse)
    pulse.submit(concurrency_key="k")
    assert (sees(pulse), sees(pulse, keyed=False)) == (True, False)
    worker = pulse.worker()
    held = worker.claim_one()
    pulse.submit(concurrency_key="k")
    assert not sees(pulse)
    worker.decline(held)
    assert sees(pulse)
    pulse.submit()
    assert (sees(pulse), sees(pulse, keyed=False)) == (True, True)


def test_many_pairs_are_told_apart(pulse: Pulse, session: Session) -> None:
    """Each of 40 pairs is looked at by itself."""
    tenant = pulse.tenant
    queues = [make_queue(session, tenant.application_id, tenant.namespace_id) for _ in range(4)]
    versions = [str(n) for n in range(10)]
    for queue_id, version in ((queues[0], "3"), (queues[3], "9")):
        pulse.submit(queue_id=queue_id, handler_version=version)
    pairs = [(queue_id, handler_digest("work", version)) for queue_id in queues for version in versions]
    for wanted in (Wanted(keyed=pairs), Wanted(keyless=pairs)):
        found = session.run(lambda tx, wanted=wanted: probe(tx, wanted))  # type: ignore[misc]
        assert found.keyed | found.keyless == {pairs[3], pairs[39]}


def test_due_tasks_and_the_next_one(pulse: Pulse) -> None:
    """Due ones by application; the next one's time counts from now. Delayed tasks of others may come first."""
    soon = pulse.submit(delay_ms=60_000)
    before = look(pulse)
    assert soon not in before.due.get(pulse.tenant.application_id, ())
    assert before.next_due_ms is not None
    assert before.next_due_ms <= 60_000
    long_ago = datetime(2000, 1, 1)
    set_columns(pulse.session, "tasks", {"available_at": long_ago, "due_at": long_ago}, task_id=soon)
    found = look(pulse)
    assert found.due[pulse.tenant.application_id] == (soon,)
    assert found.next_due_ms == 0
    assert pulse.promote(soon) == 1
    assert sees(pulse)


def test_why_a_queue_is_blocked(tenants: TenantMaker, session: Session) -> None:
    """Paused, full, out of Starts (with the time that is left), the application full."""
    for limits, options, block in (
        (QueueLimits(paused=True), {}, Block.PAUSED),
        (QueueLimits(max_concurrency=1), {}, Block.FULL),
        (QueueLimits(rate_per_second=1), {}, Block.RATE),
        (QueueLimits(), {"max_active": 1}, Block.APPLICATION_FULL),
    ):
        pulse = Pulse(session, tenants(limits=limits, **options))
        pulse.submit_many(2)
        if block is not Block.PAUSED:
            assert pulse.tenant.queue_id not in look(pulse).blocked
            held = pulse.worker().claim_one()
        blocked = look(pulse).blocked[pulse.tenant.queue_id]
        assert (blocked.reason, blocked.wait_ms) == (block, None)
        if block is Block.RATE:
            session.run(
                lambda tx, held=held: tx.execute(  # type: ignore[misc]
                    "UPDATE queue_usage SET window_started_at = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR,"
                    " window_count = 1, leased_unstarted = leased_unstarted - 1 WHERE queue_id = %s",
                    (held.queue_id,),
                )
            )
            timed = look(pulse).blocked[pulse.tenant.queue_id]
            session.run(
                lambda tx, held=held: tx.execute(  # type: ignore[misc]
                    "UPDATE queue_usage SET window_started_at = NULL, window_count = 0,"
                    " leased_unstarted = leased_unstarted + 1 WHERE queue_id = %s",
                    (held.queue_id,),
                )
            )
            assert timed.reason is Block.RATE
            assert timed.wait_ms is not None
            assert timed.wait_ms > 3_000_000


def test_a_probe_costs_the_same_whatever_waits(pulse: Pulse) -> None:
    """A thousand claimable lanes and a thousand delayed tasks: a handful of index entries."""

    def reads(tx: Tx) -> int:
        rows = tx.rows("SHOW SESSION STATUS LIKE 'Handler_read%'")
        return sum(int(row[1]) for row in rows if row[0] != "Handler_read_rnd_next")

    def cost() -> int:
        before = pulse.session.run(reads)
        look(pulse)
        return pulse.session.run(reads) - before

    pulse.submit()
    pulse.submit(delay_ms=3_600_000)
    few = cost()
    for start in range(0, 1_000, 100):
        pulse.submit_each([pulse.command(concurrency_key=f"k{n}") for n in range(start, start + 100)])
        pulse.submit_each([pulse.command(delay_ms=3_600_000 + n) for n in range(100)])
    assert cost() <= few + 5


def test_cancel_intents_are_found_by_attempt(pulse: Pulse) -> None:
    """Of many attempts, those whose task somebody wants cancelled; one that hadn't started has ended by it."""
    pulse.submit_many(3)
    worker = pulse.worker()
    running, untouched = worker.run_one(), worker.run_one()
    leased = worker.claim_one()
    for one in (running, leased):
        pulse.cancel(one.task_id)
    ids = [one.attempt_id for one in (running, untouched, leased)]
    found = pulse.session.run(lambda tx: cancelled_attempts(tx, ids))
    assert found == {running.attempt_id: True, leased.attempt_id: False}
    assert pulse.session.run(lambda tx: cancelled_attempts(tx, [])) == {}
