"""Drive Pulse's list functions without a network: submit, work, expire, and look at the rows."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

import pytest

from orbit.domain.errors import OrbitError
from orbit.domain.ids import new_id
from orbit.domain.states import DeclineReason, Outcome
from orbit.pulse.cancel import cancel_tasks
from orbit.pulse.commands import (
    Assignment,
    CancelTask,
    Claimed,
    ClaimTasks,
    DeclineAttempt,
    FinishAttempt,
    PromoteTasks,
    Seat,
    StartAttempt,
    SubmitTask,
    TaskAnswer,
    TickOperation,
)
from orbit.pulse.expire import Expired, ExpireReport, expire
from orbit.pulse.renew import renew_leases
from orbit.pulse.resume import resume_sessions
from orbit.pulse.session_commands import AttemptRef, Renewed, RenewLeases, Resumed, ResumeSession
from orbit.pulse.snapshots import current
from orbit.pulse.submit import submit_tasks
from orbit.pulse.tick import tick
from orbit.store.dsn import Dsn
from orbit.store.session import Session
from orbit.store.sql.tasks import TaskRow, select_tasks
from orbit.store.transaction import Tx
from tests.support.rows import NO_GRACE, set_grace
from tests.support.tenants import Tenant

LEASE_MS = 30_000
HANDLER = ("work", "1")
Result = TypeVar("Result")


class Row(dict[str, Any]):
    """A row by column name, readable as attributes."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


def succeeded(outcome: Result | OrbitError) -> Result:
    """Return an outcome that isn't a refusal; raise the refusal."""
    if isinstance(outcome, OrbitError):
        raise outcome
    return outcome


def repeated(command: SubmitTask) -> SubmitTask:
    """Return what a client's repeat of a submit is to the server: the same identity, a new candidate id."""
    return replace(command, task_id=new_id())


class Pulse:
    """One tenant's commands on one session; a test that needs concurrency makes one for each thread."""

    def __init__(self, session: Session, tenant: Tenant) -> None:
        self.session = session
        self.tenant = tenant

    # --- submission

    def command(self, **fields: Any) -> SubmitTask:
        """Return a submit of this tenant; every field has a default, every command its own identity."""
        defaults: dict[str, Any] = {
            "token": self.tenant.token,
            "idempotency_key": secrets.token_hex(12),
            "task_id": new_id(),
            "queue_id": self.tenant.queue_id,
            "handler": HANDLER[0],
            "handler_version": HANDLER[1],
            "payload_version": "1",
            "payload": b"{}",
        }
        return SubmitTask(**{**defaults, **fields})

    def submit_each(self, commands: Sequence[SubmitTask]) -> list[TaskAnswer | OrbitError]:
        return self.session.run_group(self._of_application(submit_tasks), commands)

    def submit(self, **fields: Any) -> bytes:
        """Submit one task and return its id; raises the refusal."""
        return succeeded(self.submit_each([self.command(**fields)])[0]).task.task_id

    def submit_many(self, count: int, **fields: Any) -> list[bytes]:
        """Submit many alike and return their ids."""
        ids: list[bytes] = []
        while len(ids) < count:
            group = [self.command(**fields) for _ in range(min(128, count - len(ids)))]
            ids += [succeeded(outcome).task.task_id for outcome in self.submit_each(group)]
        return ids

    # --- cancellation, promotion and recovery

    def cancel_each(self, commands: Sequence[CancelTask]) -> list[TaskAnswer | OrbitError]:
        return self.session.run_group(self._of_application(cancel_tasks), commands)

    def cancellation(self, task_id: bytes, **fields: Any) -> CancelTask:
        defaults: dict[str, Any] = {
            "token": self.tenant.token,
            "idempotency_key": secrets.token_hex(12),
            "task_id": task_id,
            "reason": "test",
        }
        return CancelTask(**{**defaults, **fields})

    def cancel(self, task_id: bytes) -> TaskAnswer | OrbitError:
        return self.cancel_each([self.cancellation(task_id)])[0]

    def promote(self, *task_ids: bytes) -> int:
        return int(self.tick(PromoteTasks(task_ids=task_ids))[0].count)

    def expire(self, *attempt_ids: bytes, tasks: Sequence[bytes] = ()) -> ExpireReport:
        """Offer candidates to recovery, which judges them anew."""
        candidates = Expired(attempt_ids=list(attempt_ids), task_ids=list(tasks))
        return self.expire_in_grace(candidates)

    def expire_in_grace(self, candidates: Expired, *, grace_until: datetime = NO_GRACE) -> ExpireReport:
        """Run recovery right after a beat that left this grace."""
        set_grace(self.session, grace_until)
        return self.session.run(lambda tx: expire(tx, self.tenant.application_id, candidates))

    # --- the dispatch tick

    def tick(self, *operations: TickOperation) -> list[Any]:
        return self.session.run_group(self._of_application(tick), operations)

    def worker(self, *, concurrency_keys: bool = True, worker_ref: bytes | None = None) -> Worker:
        """Register a worker process with a session of its own."""
        session_id, ref = new_id(), worker_ref or new_id()
        self.session.run(lambda tx: _insert_session(tx, self.tenant, session_id, ref))
        return Worker(self, session_id, ref, concurrency_keys=concurrency_keys)

    # --- looking at rows

    def row(self, table: str, **where: Any) -> Row:
        """Return the one row of `table` that matches."""
        found = self.rows(table, **where)
        assert len(found) == 1, f"{len(found)} rows in {table}"
        return found[0]

    def rows(self, table: str, **where: Any) -> list[Row]:
        return self.session.run(lambda tx: select_rows(tx, table, **where))

    def task(self, task_id: bytes) -> TaskRow:
        """Return a task's row, completed with what its live attempt alone knows."""
        return self.session.run(lambda tx: current(tx, [select_tasks(tx, [task_id])[task_id]])[0])

    def attempt(self, assignment: Assignment) -> Row:
        return self.row("attempts", attempt_id=assignment.attempt_id)

    def usage(self, queue_id: bytes | None = None) -> Row:
        return self.row("queue_usage", queue_id=queue_id or self.tenant.queue_id)

    def quota(self) -> Row:
        return self.row("application_quotas", application_id=self.tenant.application_id)

    def events(self, task_id: bytes) -> list[str]:
        """Return the states of a task's result events, in stream order."""
        rows = sorted(self.rows("result_events", task_id=task_id), key=lambda row: row.sequence)
        return [row.task_state for row in rows]

    def key(self, concurrency_key: str) -> Row:
        return self.row(
            "concurrency_keys",
            namespace_id=self.tenant.namespace_id,
            concurrency_key=concurrency_key.encode(),
        )

    def _of_application(self, function: Any) -> Any:
        return lambda tx, commands: function(tx, self.tenant.application_id, commands)


class Worker:
    """One worker process in its current session."""

    def __init__(
        self, pulse: Pulse, session_id: bytes, worker_ref: bytes, *, concurrency_keys: bool = True
    ) -> None:
        self.pulse = pulse
        self.session_id = session_id
        self.worker_ref = worker_ref
        self.concurrency_keys = concurrency_keys

    def on(self, pulse: Pulse) -> Worker:
        """The same worker, its commands on another connection."""
        return Worker(pulse, self.session_id, self.worker_ref, concurrency_keys=self.concurrency_keys)

    def claiming(self, free: int = 1, **fields: Any) -> ClaimTasks:
        defaults: dict[str, Any] = {
            "namespace_id": self.pulse.tenant.namespace_id,
            "queue_ids": (self.pulse.tenant.queue_id,),
            "handlers": (HANDLER,),
            "concurrency_keys": self.concurrency_keys,
            "seats": (Seat(session_id=self.session_id, free=free),),
            "attempt_ids": tuple(new_id() for _ in range(min(free, 64))),
            "lease_ms": LEASE_MS,
        }
        return ClaimTasks(**{**defaults, **fields})

    def starting(self, held: Assignment, **fields: Any) -> StartAttempt:
        return StartAttempt(**{**self._about(held), "lease_ms": LEASE_MS, **fields})

    def finishing(
        self, held: Assignment, outcome: Outcome = Outcome.SUCCEEDED, **fields: Any
    ) -> FinishAttempt:
        return FinishAttempt(**{**self._about(held), "outcome": outcome, **fields})

    def declining(
        self, held: Assignment, reason: DeclineReason = DeclineReason.DRAINING, **fields: Any
    ) -> DeclineAttempt:
        return DeclineAttempt(**{**self._about(held), "reason": reason, **fields})

    def claim(self, free: int = 1, **fields: Any) -> tuple[Assignment, ...]:
        outcome: Claimed = succeeded(self.pulse.tick(self.claiming(free, **fields))[0])
        return outcome.assignments

    def claim_one(self, **fields: Any) -> Assignment:
        assignments = self.claim(1, **fields)
        assert len(assignments) == 1, "nothing to claim"
        return assignments[0]

    def start(self, held: Assignment, **fields: Any) -> Any:
        return self.pulse.tick(self.starting(held, **fields))[0]

    def finish(self, held: Assignment, outcome: Outcome = Outcome.SUCCEEDED, **fields: Any) -> Any:
        return self.pulse.tick(self.finishing(held, outcome, **fields))[0]

    def decline(self, held: Assignment, reason: DeclineReason = DeclineReason.DRAINING) -> Any:
        return self.pulse.tick(self.declining(held, reason))[0]

    def run_one(self, **fields: Any) -> Assignment:
        """Claim one task and start it."""
        held = self.claim_one(**fields)
        succeeded(self.start(held))
        return held

    def renew(self, *held: Assignment, lease_ms: int = LEASE_MS) -> Any:
        command = RenewLeases(session_id=self.session_id, attempts=_refs(held), lease_ms=lease_ms)
        outcome: Renewed | OrbitError = self.pulse.session.run_group(renew_leases, [command])[0]
        return outcome

    def resume(self, *held: Assignment, lease_ms: int = LEASE_MS) -> Any:
        command = ResumeSession(session_id=self.session_id, attempts=_refs(held), lease_ms=lease_ms)
        application_id = self.pulse.tenant.application_id
        outcome: Resumed | OrbitError = self.pulse.session.run_group(
            lambda tx, commands: resume_sessions(tx, application_id, commands), [command]
        )[0]
        return outcome

    def reconnect(self) -> Worker:
        """Take the old session's place with a new one, as the same process."""
        session_id = new_id()
        self.pulse.session.run(
            lambda tx: tx.execute(
                "UPDATE worker_sessions SET session_id = %s, generation = generation + 1 WHERE worker_ref = %s",
                (session_id, self.worker_ref),
            )
        )
        return Worker(self.pulse, session_id, self.worker_ref, concurrency_keys=self.concurrency_keys)

    def _about(self, held: Assignment) -> dict[str, Any]:
        return {
            "session_id": self.session_id,
            "command_id": secrets.token_hex(8),
            "attempt_id": held.attempt_id,
            "epoch": held.epoch,
        }


def _refs(held: Sequence[Assignment]) -> tuple[AttemptRef, ...]:
    return tuple(AttemptRef(attempt_id=one.attempt_id, epoch=one.epoch) for one in held)


def select_rows(tx: Tx, table: str, **where: Any) -> list[Row]:
    """Return rows of `table` as mappings."""
    columns = [
        row[0]
        for row in tx.rows(
            "SELECT column_name FROM information_schema.columns"
            " WHERE table_schema = DATABASE() AND table_name = %s ORDER BY ordinal_position",
            (table,),
        )
    ]
    condition = " AND ".join(f"{name} = %s" for name in where) or "TRUE"
    rows = tx.rows(f"SELECT {', '.join(columns)} FROM {table} WHERE {condition}", list(where.values()))
    return [Row(zip(columns, row, strict=True)) for row in rows]


def _insert_session(tx: Tx, tenant: Tenant, session_id: bytes, worker_ref: bytes) -> None:
    tx.execute(
        "INSERT INTO worker_sessions (worker_ref, application_id, namespace_id, credential_id, worker_id,"
        " registration_digest, session_id, generation, dispatcher_id, name, sdk, capacity, concurrency_keys,"
        " connected_at, ended_at)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, 1, %s, NULL, 'test', 64, 1, UTC_TIMESTAMP(6), NULL)",
        (
            worker_ref,
            tenant.application_id,
            tenant.namespace_id,
            tenant.credential_id,
            new_id(),
            bytes(32),
            session_id,
            new_id(),
        ),
    )


@contextmanager
def pulse_of(dsn: Dsn, tenant: Tenant, **options: Any) -> Iterator[Pulse]:
    """A driver on a connection of its own, for one thread."""
    session = Session(dsn, **options)
    try:
        yield Pulse(session, tenant)
    finally:
        session.close()


@pytest.fixture
def pulse(session: Session, tenant: Tenant) -> Pulse:
    """This test's tenant, driven on this test's session."""
    return Pulse(session, tenant)


@pytest.fixture
def worker(pulse: Pulse) -> Worker:
    """A worker of this test's tenant that declared concurrency keys."""
    return pulse.worker()
