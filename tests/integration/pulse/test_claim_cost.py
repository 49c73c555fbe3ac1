"""What a claim costs stays flat: statements in the group, locked rows in the backlog, reads in blocked keys."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from orbit.domain.errors import OrbitError
from orbit.localdb.bundle import Flavour
from orbit.localdb.instance import Instance
from orbit.pulse.commands import SubmitTask
from orbit.pulse.tick import tick
from orbit.store.driver import Row
from orbit.store.dsn import Dsn
from orbit.store.session import Session
from orbit.store.transaction import Tx
from tests.support.lockwait import connection_id, locked_rows
from tests.support.pulse import HANDLER, Pulse, Worker, succeeded
from tests.support.rows import lapse
from tests.support.statements import Recorder, hooked
from tests.support.tenants import Tenant, make_sibling, make_tenant

BACKLOG = 10_000
BLOCKED = 5_000
GROUP = 64


class _Undo(OrbitError):
    """Rolls a look back."""


@pytest.fixture(scope="module")
def long_queue(dsn: Dsn) -> Iterator[Tenant]:
    """A tenant with a keyless backlog, and in another handler's lanes one key with thousands of tasks behind it."""
    session = Session(dsn)
    tenant = make_tenant(session)
    pulse = Pulse(session, tenant)
    pulse.submit_many(BACKLOG)
    pulse.submit_many(BLOCKED, handler="keyed", concurrency_key="hot", priority=9)
    for n in range(GROUP):
        pulse.submit(handler="keyed", concurrency_key=f"free-{n}")
    yield tenant
    session.close()


@dataclass
class Costs:
    """Statements that each step took."""

    session: Session
    found: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def of(self, step: str) -> Iterator[None]:
        before = self.session.stats.statements
        yield
        self.found[step] = self.session.stats.statements - before


def commands_of(pulse: Pulse, size: int, *, keyed: bool) -> list[SubmitTask]:
    """Return submits, keyed each by a key of its own."""
    return [
        pulse.command(**({"concurrency_key": secrets.token_hex(6)} if keyed else {})) for _ in range(size)
    ]


def life_costs(pulse: Pulse, worker: Worker, size: int, *, keyed: bool) -> dict[str, int]:
    """Take so many tasks through their lives together."""
    costs, commands = Costs(pulse.session), commands_of(pulse, size, keyed=keyed)
    with costs.of("submit"):
        pulse.submit_each(commands)
    with costs.of("claim"):
        held = worker.claim(size)
    assert len(held) == size
    with costs.of("start"):
        started = pulse.tick(*map(worker.starting, held))
    with costs.of("renew"):
        worker.renew(*held)
    with costs.of("resume"):
        worker.resume(*held)
    with costs.of("finish"):
        finished = pulse.tick(*map(worker.finishing, held))
    for outcome in started + finished:
        succeeded(outcome)
    return costs.found


def loss_costs(pulse: Pulse, worker: Worker, size: int, *, keyed: bool) -> dict[str, int]:
    """Take so many tasks away from their worker in every way."""
    costs = Costs(pulse.session)
    pulse.submit_each(commands_of(pulse, size, keyed=keyed))
    held = worker.claim(size)
    with costs.of("decline"):
        declined = pulse.tick(*map(worker.declining, held))
    for outcome in declined:
        succeeded(outcome)
    held = worker.claim(size)
    for one in held:
        lapse(pulse.session, one.attempt_id)
    with costs.of("expire"):
        assert pulse.expire(*(one.attempt_id for one in held)).attempts == size
    held = worker.claim(size)
    cancels = [pulse.cancellation(one.task_id) for one in held]
    with costs.of("cancel"):
        cancelled = pulse.cancel_each(cancels)
    assert {succeeded(answer).task.state for answer in cancelled} == {"CANCELLED"}
    return costs.found


@pytest.mark.parametrize("keyed", [False, True], ids=["keyless", "keyed"])
@pytest.mark.parametrize("course", [life_costs, loss_costs])
def test_statements_dont_grow_with_the_group(
    pulse: Pulse, worker: Worker, keyed: bool, course: Callable[..., dict[str, int]]
) -> None:
    """64 commands of a kind cost what one costs, give or take two statements."""
    one = course(pulse, worker, 1, keyed=keyed)
    many = course(pulse, worker, GROUP, keyed=keyed)
    assert {step: many[step] for step in one if abs(many[step] - one[step]) > 2} == {}, one


def test_results_of_several_namespaces_cost_what_those_of_one_do(session: Session, pulse: Pulse) -> None:
    """One tick ends a task in each of four namespaces; every namespace's own numbers go on without a gap."""
    tenants = [pulse.tenant, *(make_sibling(session, pulse.tenant) for _ in range(3))]
    pulses = [Pulse(session, tenant) for tenant in tenants]
    costs = Costs(session)
    for step, members in (("one", pulses[:1]), ("all", pulses)):
        ends = []
        for own in members:
            worker = own.worker()
            own.submit()
            ends.append(worker.finishing(worker.run_one()))
        with costs.of(step):
            finished = pulse.tick(*ends)
        for outcome in finished:
            succeeded(outcome)
    assert costs.found["all"] == costs.found["one"]
    numbered = [
        sorted(row.sequence for row in own.rows("result_events", namespace_id=own.tenant.namespace_id))
        for own in pulses
    ]
    assert numbered == [[1, 2], [1], [1], [1]]


@pytest.mark.parametrize(("handler", "per_task"), [("work", 1), ("keyed", 1)])
def test_a_claim_locks_only_what_it_takes(
    instance: Instance, dsn: Dsn, long_queue: Tenant, handler: str, per_task: int
) -> None:
    """A claim of 64 out of thousands locks 64 tasks, their lanes and keys, the application, and no other row."""
    session = Session(dsn)
    pulse = Pulse(session, long_queue)
    command = pulse.worker().claiming(GROUP, handlers=((handler, "1"),))
    found: dict[str, int] = {}

    def work(tx: Tx) -> None:
        (claimed,) = tick(tx, long_queue.application_id, [command])
        assert not isinstance(claimed, OrbitError)
        assert len(claimed.assignments) == GROUP  # type: ignore[union-attr]
        found.update(locked_rows(instance, connection_id(tx)))
        raise _Undo("undo")

    with pytest.raises(_Undo):
        session.run(work)
    session.close()
    if instance.flavour is Flavour.MARIADB:
        # One number for all indexes: tasks and their three changed indexes, attempts, lanes, keys, counters.
        assert 0 < found["rows"] < 14 * GROUP
        return
    assert found["tasks.PRIMARY"] == GROUP * per_task
    assert sum(count for name, count in found.items() if name.startswith("tasks.")) <= 2 * GROUP
    assert found["application_quotas.PRIMARY"] == 1
    assert found.get("lanes.PRIMARY", 0) <= GROUP
    assert sum(found.values()) <= 8 * GROUP, found


def recorded(dsn: Dsn, tenant: Tenant, act: Callable[[Pulse], object]) -> list[str]:
    """Return the statements of what `act` does in one session."""
    recorder = Recorder()
    session = Session(dsn, connector=hooked(recorder))
    try:
        act(Pulse(session, tenant))
    finally:
        session.close()
    return recorder.statements


@pytest.mark.parametrize("handlers", [(HANDLER,), (("keyed", "1"),), (HANDLER, ("keyed", "1"))])
@pytest.mark.parametrize("free", [1, 64, 256])
def test_no_claim_query_sorts_in_a_file(
    dsn: Dsn, long_queue: Tenant, session: Session, handlers: tuple[tuple[str, str], ...], free: int
) -> None:
    """EXPLAIN of every SELECT of a claim: read in index order, whatever the LIMIT; a sort would read everything."""

    def act(pulse: Pulse) -> None:
        command = pulse.worker().claiming(free, handlers=handlers, attempt_ids=tuple(_ids(free)))

        def work(tx: Tx) -> None:
            tick(tx, long_queue.application_id, [command])
            raise _Undo("undo")

        with pytest.raises(_Undo):
            pulse.session.run(work)

    selects = [sql for sql in recorded(dsn, long_queue, act) if "FROM tasks" in sql and "ORDER BY" in sql]
    assert selects
    for sql in selects:
        if not re.match(r"\s*\(?\s*SELECT", sql):
            continue
        plan = explain(session, sql)
        assert "filesort" not in str(plan).lower(), (sql, plan)
        assert "ix_tasks_claim" in str(plan)


def explain(session: Session, sql: str) -> Sequence[Row]:
    return session.run(lambda tx: tx.rows(f"EXPLAIN {sql}"))


def _ids(count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield secrets.token_bytes(16)


def read_rows(tx: Tx) -> int:
    """Return how many rows the storage engine has handed to this session's statements so far."""
    return sum(
        int(row[1])
        for row in tx.rows("SHOW SESSION STATUS LIKE 'Handler_read%'")
        if row[0] != "Handler_read_rnd_deleted"
    )


def test_thousands_blocked_on_one_key_cost_nothing_f43(dsn: Dsn, long_queue: Tenant) -> None:
    """F43: the hot key held, the free keys behind 5,000 blocked tasks of higher priority cost a few reads."""
    session = Session(dsn)
    pulse = Pulse(session, long_queue)
    worker = pulse.worker()
    (hot,) = worker.claim(1, handlers=(("keyed", "1"),))
    assert hot.concurrency_key == "hot"
    command = worker.claiming(GROUP, handlers=(("keyed", "1"),))
    reads: list[int] = []

    def work(tx: Tx) -> None:
        before = read_rows(tx)
        (claimed,) = tick(tx, long_queue.application_id, [command])
        reads.append(read_rows(tx) - before)
        assert {one.concurrency_key for one in claimed.assignments} == {  # type: ignore[union-attr]
            f"free-{n}" for n in range(GROUP)
        }
        raise _Undo("undo")

    with pytest.raises(_Undo):
        session.run(work)
    succeeded(worker.decline(hot))
    session.close()
    assert reads[0] < 30 * GROUP, "rows read grow with what is blocked"
