"""Payloads of claimed attempts: read by primary key after the commit, outside the lock, as workers take them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import trio

from orbit.pulse.commands import Assignment
from orbit.runtime.database import Database
from orbit.runtime.logging import get_logger
from orbit.scheduler import replies
from orbit.scheduler.outbox import MESSAGE_BYTES
from orbit.scheduler.session import WorkerSession
from orbit.store.sql.tasks import select_payloads

READ_MAX: Final = 64
RETRY_SECONDS: Final = 0.5


@dataclass(slots=True)
class _Parcel:
    """An attempt on its way to its session."""

    session: WorkerSession
    assignment: Assignment
    payload: bytes | None = None


class Payloads:
    """Turns claimed attempts into assignment messages; they wait here while their session's outbox is full.

    Must not be the way by which an outbox passes its hard bound: 64 payloads may have 16 MiB.
    """

    def __init__(
        self, database: Database, *, undeliverable: Callable[[WorkerSession, Assignment], None]
    ) -> None:
        self._database = database
        self._undeliverable = undeliverable
        self._line: deque[_Parcel] = deque()
        self._held_up: dict[WorkerSession, deque[_Parcel]] = {}
        self._wake = trio.Event()

    def add(self, session: WorkerSession, assignment: Assignment) -> None:
        """Deliver an attempt to its session as soon as there is room for it."""
        self._line.append(_Parcel(session, assignment))
        self._wake.set()

    def release(self, session: WorkerSession) -> None:
        """Go on with a session whose outbox has room again, or which has ended."""
        held_up = self._held_up.pop(session, None)
        if held_up:
            self._line.extend(held_up)
            self._wake.set()

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            if not self._line:
                self._wake = trio.Event()
                await self._wake.wait()
            unread = [parcel for parcel in self._take() if parcel.payload is None and self._may_go(parcel)]
            if unread:
                await self._read(unread)

    def _take(self) -> list[_Parcel]:
        """Take a group from the line; those whose payload is here go at once."""
        group = [self._line.popleft() for _ in range(min(READ_MAX, len(self._line)))]
        for parcel in group:
            if parcel.payload is not None and self._may_go(parcel):
                self._send(parcel, parcel.payload)
        return group

    async def _read(self, parcels: list[_Parcel]) -> None:
        task_ids = [parcel.assignment.task_id for parcel in parcels]
        try:
            payloads = await self._database.read(lambda tx: select_payloads(tx, task_ids))
        except Exception as error:  # noqa: BLE001 - whatever ails the database, the attempts are to be delivered
            get_logger().warning("payloads_delayed", count=len(parcels), error=error)
            self._line.extendleft(reversed(parcels))
            await trio.sleep(RETRY_SECONDS)
            return
        for parcel in parcels:
            parcel.payload = payloads.get(parcel.assignment.task_id)
            if parcel.payload is None:
                self._undeliverable(parcel.session, parcel.assignment)
            elif self._may_go(parcel):
                self._send(parcel, parcel.payload)

    def _may_go(self, parcel: _Parcel) -> bool:
        """Tell whether the session can take it now; otherwise see to it that it goes later, or back."""
        session = parcel.session
        if not session.is_live:
            self._undeliverable(session, parcel.assignment)
            return False
        if session.outbox.is_full or session in self._held_up:
            self._held_up.setdefault(session, deque()).append(parcel)
            return False
        return True

    @staticmethod
    def _send(parcel: _Parcel, payload: bytes) -> None:
        size = MESSAGE_BYTES + len(payload) + 2 * len(parcel.assignment.business_key or "")
        parcel.session.outbox.put(replies.assigned(parcel.assignment, payload), size)
