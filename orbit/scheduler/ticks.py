"""The committers: threads' worth of ticks over all applications, one in flight per application (01-architecture)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import trio

from orbit.domain.errors import OrbitError
from orbit.pulse.commands import Assignment
from orbit.pulse.resume import resume_sessions
from orbit.pulse.tick import tick
from orbit.runtime.database import Database
from orbit.runtime.logging import get_logger
from orbit.scheduler.application import Application, Tick, Waiting
from orbit.scheduler.pool import Pool
from orbit.scheduler.rotation import RoundRobin
from orbit.scheduler.session import WorkerSession

COMMITTERS: Final = 3


class Delivers(Protocol):
    """Where claimed attempts go."""

    def add(self, session: WorkerSession, assignment: Assignment) -> None: ...


class Ticks:
    """Runs the ticks of applications that ask for one, in turn."""

    def __init__(
        self, database: Database, payloads: Delivers, *, after: Callable[[Application, Tick], None]
    ) -> None:
        self._database = database
        self._payloads = payloads
        self._after = after
        self._ready: RoundRobin[Application] = RoundRobin(self._unpark)
        self._idle = trio.lowlevel.ParkingLot()

    def add(self, application: Application) -> None:
        """Give the application a turn."""
        self._ready.add(application)

    async def run(self) -> None:
        """Commit ticks until cancelled; a transaction in hand is waited for."""
        async with trio.open_nursery() as nursery:
            for _ in range(COMMITTERS):
                nursery.start_soon(self._commit)

    async def _commit(self) -> None:
        while True:
            application = self._ready.take()
            if application is None:
                await self._idle.park()
                continue
            application.in_flight = True
            resumes = application.take_resumes()
            work = Tick()
            try:
                if resumes:
                    await self._resume(application, resumes)
                work = application.take(trio.current_time())
                if work.operations:
                    await self._serve(application, work)
            except Exception as error:  # noqa: BLE001 - a bug must cost those it touches their sessions, nobody else
                get_logger().error("tick_failed", exc_info=error)
                _end_sessions([*resumes, *work.origins])
            finally:
                application.in_flight = False
            application.wake(trio.current_time())

    async def _serve(self, application: Application, work: Tick) -> None:
        outcomes = await self._group(tick, application.application_id, work.operations)
        for session, assignment in application.settle(work, outcomes, trio.current_time()):
            self._payloads.add(session, assignment)
        self._after(application, work)

    async def _resume(self, application: Application, resumes: list[Waiting]) -> None:
        commands = [waiting.command for waiting in resumes]
        outcomes = await self._group(resume_sessions, application.application_id, commands)
        now = trio.current_time()
        for waiting, outcome in zip(resumes, outcomes, strict=True):
            session = waiting.session
            assert session is not None
            session.resumed(waiting.reply_to, outcome, now)
            if isinstance(outcome, OrbitError) or not session.is_live:
                continue
            for assignment in outcome.resend:
                session.assign(assignment, now)
                self._payloads.add(session, assignment)

    async def _group(
        self,
        work: Callable[[Any, bytes, Sequence[Any]], list[Any]],
        application_id: bytes,
        operations: list[Any],
    ) -> list[Any]:
        return await self._database.write_group(lambda tx, group: work(tx, application_id, group), operations)

    def _unpark(self) -> None:
        self._idle.unpark()


def _end_sessions(origins: Iterable[object]) -> None:
    """Let the workers reconnect whose commands got no answer: they repeat them under the same ids."""
    for origin in origins:
        if isinstance(origin, Waiting) and origin.session is not None:
            origin.session.outbox.end(1013, "internal error")
        elif isinstance(origin, Pool):
            origin.abandon()
