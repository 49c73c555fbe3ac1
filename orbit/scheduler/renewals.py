"""Renewals of all applications on a committer of their own: a busy application never delays them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import trio

from orbit.domain.limits import CAPACITY_MAX, GROUP_OTHERS_MAX
from orbit.pulse.renew import renew_leases
from orbit.pulse.session_commands import RenewLeases
from orbit.runtime.database import Database
from orbit.scheduler.session import WorkerSession
from orbit.store.transaction import Tx

# A command alone may name this many; a group stays near it, so that its transaction stays short.
ATTEMPTS_MAX: Final = CAPACITY_MAX


class Renewals:
    """Takes the renewals that have gathered into one transaction after another."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._line: deque[tuple[WorkerSession, str, RenewLeases]] = deque()
        self._in_flight = 0
        self._wake = trio.Event()

    def add(self, session: WorkerSession, reply_to: str, command: RenewLeases) -> None:
        self._line.append((session, reply_to, command))
        self._wake.set()

    @property
    def is_idle(self) -> bool:
        return not self._line and not self._in_flight

    async def run(self) -> None:
        """Renew until cancelled."""
        while True:
            if not self._line:
                self._wake = trio.Event()
                await self._wake.wait()
            group = self._take()
            self._in_flight = len(group)
            outcomes = await self._database.write_group(_renew, [command for _, _, command in group])
            now = trio.current_time()
            for (session, reply_to, _), outcome in zip(group, outcomes, strict=True):
                session.renewed(reply_to, outcome, now)
            self._in_flight = 0

    def _take(self) -> list[tuple[WorkerSession, str, RenewLeases]]:
        group: list[tuple[WorkerSession, str, RenewLeases]] = []
        room = ATTEMPTS_MAX
        while self._line and len(group) < GROUP_OTHERS_MAX:
            size = len(self._line[0][2].attempts)
            if group and size > room:
                break
            room -= size
            group.append(self._line.popleft())
        return group


def _renew(tx: Tx, group: Sequence[RenewLeases]) -> list[Any]:
    return list(renew_leases(tx, group))
