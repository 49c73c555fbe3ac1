"""A worker without a network: ticks run straight on a session, as a dispatcher's committer would run them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Final

from bench.jobs import HANDLER, VERSION
from bench.tenants import Tenant
from orbit.domain.errors import OrbitError
from orbit.domain.ids import new_id
from orbit.domain.states import Outcome
from orbit.pulse.commands import (
    Assignment,
    Claimed,
    ClaimTasks,
    FinishAttempt,
    Seat,
    StartAttempt,
    TickOperation,
)
from orbit.pulse.session_commands import HandlerOffer, OpenSession
from orbit.pulse.sessions import open_sessions
from orbit.pulse.tick import tick
from orbit.store.session import Session
from orbit.store.transaction import Tx

LEASE_MS: Final = 600_000
GROUP: Final = 64


class DirectWorker:
    """One worker process's registration and what it asks for."""

    def __init__(self, session: Session, tenant: Tenant) -> None:
        self._session = session
        self.tenant = tenant
        self.session_id: Final = new_id()
        command = OpenSession(
            token=tenant.token,
            session_id=self.session_id,
            worker_ref=new_id(),
            dispatcher_id=new_id(),
            worker_id=new_id(),
            name=None,
            sdk="bench",
            queue_ids=(tenant.queue_id,),
            handlers=(HandlerOffer(name=HANDLER, version=VERSION),),
            capacity=1_000,
            concurrency_keys=True,
        )
        (opened,) = session.run(lambda tx: open_sessions(tx, tenant.application_id, [command]))
        if isinstance(opened, OrbitError):
            raise opened

    def claiming(self, count: int) -> ClaimTasks:
        return ClaimTasks(
            namespace_id=self.tenant.namespace_id,
            queue_ids=(self.tenant.queue_id,),
            handlers=((HANDLER, VERSION),),
            concurrency_keys=True,
            seats=(Seat(session_id=self.session_id, free=count),),
            attempt_ids=tuple(new_id() for _ in range(count)),
            lease_ms=LEASE_MS,
        )

    def starting(self, held: Assignment) -> StartAttempt:
        return StartAttempt(**self._about(held), lease_ms=LEASE_MS)

    def finishing(self, held: Assignment) -> FinishAttempt:
        return FinishAttempt(**self._about(held), outcome=Outcome.SUCCEEDED)

    def run(self, operations: Sequence[TickOperation]) -> list[Any]:
        """Commit one tick and return its outcomes. Raises: OrbitError, the first refusal."""
        return self._session.run(lambda tx: self.tick(tx, operations))

    def tick(self, tx: Tx, operations: Sequence[TickOperation]) -> list[Any]:
        """Run one tick in an open transaction. Raises: OrbitError, the first refusal."""
        outcomes: list[Any] = []
        for outcome in tick(tx, self.tenant.application_id, operations):
            if isinstance(outcome, OrbitError):
                raise outcome
            outcomes.append(outcome)
        return outcomes

    def claim(self, count: int) -> tuple[Assignment, ...]:
        """Claim up to `count` tasks and commit."""
        claimed: Claimed = self.run([self.claiming(count)])[0]
        return claimed.assignments

    def _about(self, held: Assignment) -> dict[str, Any]:
        return {
            "session_id": self.session_id,
            "command_id": secrets.token_hex(8),
            "attempt_id": held.attempt_id,
            "epoch": held.epoch,
        }
