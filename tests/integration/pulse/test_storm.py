"""C30, F26, F42: everything at once on shared queues and keys; nothing fails, and the books are right."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from orbit.domain.errors import OrbitError
from orbit.domain.states import Outcome
from orbit.pulse.expire import find_expired
from orbit.store.dsn import Dsn
from orbit.store.session import Session
from tests.support.pulse import Pulse, Worker
from tests.support.rows import set_grace
from tests.support.tenants import Tenant, make_queue
from tests.support.threads import Pulses, together

SECONDS = 5.0
SOAK_SECONDS = 300.0
# What a worker or client may hear in a storm; never INTERNAL, never UNAVAILABLE.
CALM = {
    "STALE_ATTEMPT",
    "STATE_CONFLICT",
    "CANCELLED",
    "RATE_LIMITED",
    "IDEMPOTENCY_CONFLICT",
    "QUEUE_FULL",
}


class Storm:
    """Roles that hammer one tenant until the time is over."""

    def __init__(self, tenant: Tenant, queues: list[bytes], seconds: float) -> None:
        self.queues = queues
        self._tenant = tenant
        self._end = time.monotonic() + seconds
        self.refusals: list[OrbitError] = []
        self.done = 0
        self._lock = threading.Lock()

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._end

    def note(self, outcomes: object) -> None:
        for one in outcomes if isinstance(outcomes, list) else [outcomes]:
            with self._lock:
                if isinstance(one, OrbitError):
                    self.refusals.append(one)
                else:
                    self.done += 1

    def submit(self, pulse: Pulse) -> None:
        """Batches of 32 over both queues, shuffled, a quarter keyed, some delayed."""
        while not self.is_over:
            batch = [
                pulse.command(
                    queue_id=random.choice(self.queues),
                    concurrency_key=f"key-{random.randrange(6)}" if random.random() < 0.25 else None,
                    delay_ms=random.choice([None, None, None, 1]),
                )
                for _ in range(32)
            ]
            self.note(pulse.submit_each(batch))

    def dispatch(self, pulse: Pulse) -> None:
        """Claim, start, and end in every way, several attempts in one tick."""
        worker = pulse.worker()
        while not self.is_over:
            held = worker.claim(16, queue_ids=tuple(random.sample(self.queues, len(self.queues))))
            kept = [one for one in held if random.random() < 0.9]
            self.note(pulse.tick(*map(worker.starting, kept)))
            self.note(worker.renew(*kept))
            lapse = kept[: len(kept) // 8]
            if lapse:
                self.note(worker.renew(*lapse, lease_ms=0))
            endings = [worker.finishing(one, random.choice(list(Outcome))) for one in kept[len(lapse) :]]
            random.shuffle(endings)
            declines = [worker.declining(one) for one in held if one not in kept]
            self.note(pulse.tick(*endings, *declines, worker.claiming(0)))

    def cancel(self, pulse: Pulse) -> None:
        while not self.is_over:
            rows = pulse.session.run(
                lambda tx: tx.rows(
                    "SELECT task_id FROM tasks WHERE queue_id = %s AND state IN ('WAITING', 'LEASED', 'RUNNING')"
                    " ORDER BY updated_at DESC LIMIT 8",
                    (random.choice(self.queues),),
                )
            )
            self.note(pulse.cancel_each([pulse.cancellation(row[0]) for row in rows]))

    def promote(self, pulse: Pulse) -> None:
        while not self.is_over:
            rows = pulse.session.run(
                lambda tx: tx.rows(
                    "SELECT task_id FROM tasks FORCE INDEX (ix_tasks_due) WHERE due_at <= UTC_TIMESTAMP(6)"
                    " AND application_id = %s LIMIT 64",
                    (self._tenant.application_id,),
                )
            )
            pulse.promote(*(row[0] for row in rows))

    def recover(self, pulse: Pulse) -> None:
        while not self.is_over:
            set_grace(pulse.session)
            found = pulse.session.run(lambda tx: find_expired(tx, 200)).get(self._tenant.application_id)
            if found is not None:
                pulse.expire_in_grace(found)


@pytest.mark.parametrize("seconds", [SECONDS, pytest.param(SOAK_SECONDS, marks=pytest.mark.soak)])
@pytest.mark.timeout(600)
def test_a_storm_of_everything_c30_f26(dsn: Dsn, pulse: Pulse, seconds: float) -> None:
    """C30 F26: submitters, dispatchers, cancels, recovery on two queues and six keys: no error, hardly a deadlock."""
    tenant = pulse.tenant
    queues = [tenant.queue_id, make_queue(pulse.session, tenant.application_id, tenant.namespace_id)]
    storm = Storm(tenant, queues, seconds)
    roles = [storm.submit] * 3 + [storm.dispatch] * 4 + [storm.cancel, storm.promote, storm.recover]
    with Pulses(dsn, tenant, len(roles)) as pulses:
        acts: list[Callable[[], None]] = [partial(role, own) for role, own in zip(roles, pulses, strict=True)]
        together(acts, within=seconds + 60)
        stats = [own.session.stats for own in pulses]
    assert {one.code for one in storm.refusals} <= CALM, [str(one) for one in storm.refusals][:5]
    assert storm.done > 100
    commits, deadlocks = sum(one.commits for one in stats), sum(one.deadlocks for one in stats)
    print(f"{commits} commits, {deadlocks} deadlocks, {storm.done} commands")
    assert deadlocks <= commits // 100, f"{deadlocks} deadlocks in {commits} commits"
    assert sum(one.lock_timeouts for one in stats) == 0


def test_many_keys_and_a_busy_one_f42(dsn: Dsn, pulse: Pulse) -> None:
    """F42 scaled: 400 keys beside a busy one, workers vanish; tokens rise, and the busy key delays nobody."""
    pulse.submit_many(40, concurrency_key="busy", priority=9)
    commands = [pulse.command(concurrency_key=f"k-{n}") for n in range(400)]
    for start in range(0, 400, 100):
        pulse.submit_each(commands[start : start + 100])
    holder = pulse.worker().claim_one()
    assert holder.concurrency_key == "busy"

    def drain(own: Pulse) -> list[str]:
        worker, done = own.worker(), []
        while held := worker.claim(16):
            for one, outcome in zip(held, own.tick(*map(worker.starting, held)), strict=True):
                assert not isinstance(outcome, OrbitError)
                done.append(one.concurrency_key or "")
            if random.random() < 0.2:
                vanish(own, worker, [one.attempt_id for one in held])
            else:
                own.tick(*map(worker.finishing, held))
        return done

    with Pulses(dsn, pulse.tenant, 3) as pulses:
        done = [key for part in together([partial(drain, own) for own in pulses]) for key in part]
    assert sorted(done) == sorted(f"k-{n}" for n in range(400))
    assert pulse.session.run(lambda tx: tx.value(_RISING, (pulse.tenant.namespace_id,))) == 0


_RISING = """
SELECT COUNT(*) FROM attempts a JOIN attempts b
    ON b.namespace_id = a.namespace_id AND b.key_digest = a.key_digest AND b.leased_at > a.leased_at
WHERE a.namespace_id = %s AND b.concurrency_token <= a.concurrency_token
"""


def vanish(pulse: Pulse, worker: Worker, attempt_ids: list[bytes]) -> None:
    """A worker dies: recovery ends what it held once its leases are over."""

    def end_leases(session: Session) -> None:
        session.run(
            lambda tx: tx.execute(
                "UPDATE attempts SET lease_expires_at = UTC_TIMESTAMP(6) WHERE attempt_id IN %s"
                " AND lease_expires_at IS NOT NULL",
                (attempt_ids,),
            )
        )

    end_leases(pulse.session)
    assert pulse.expire(*attempt_ids).attempts == len(attempt_ids)
