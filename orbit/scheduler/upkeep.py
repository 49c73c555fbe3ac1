"""What a dispatcher does by the clock: check its sessions, tell of cancels, show that it lives."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from orbit.domain.errors import OrbitError
from orbit.domain.limits import DISPATCHER_HEARTBEAT_MS
from orbit.pulse.dispatchers import beat_dispatcher, prune_dispatchers, unregister_dispatcher
from orbit.pulse.probe import cancelled_attempts
from orbit.pulse.sessions import SessionStanding, check_sessions, close_sessions
from orbit.runtime.database import Database
from orbit.runtime.hints import Hint
from orbit.runtime.runner import Loop
from orbit.scheduler.dispatcher import Dispatcher, all_sessions
from orbit.store.failures import DriverError

CHECK_SECONDS: Final = 0.8
CHECK_MAX: Final = 500
PRUNE_SECONDS: Final = 60.0
CANCEL_SECONDS: Final = 0.02
CANCEL_MAX: Final = 1_000
# An attempt whose lease ended this long ago without a word no longer takes a seat in memory.
FORGET_SECONDS: Final = 60.0

_ENDINGS: Final = {SessionStanding.SUPERSEDED: "SUPERSEDED", SessionStanding.REVOKED: "credential revoked"}


class SessionChecks:
    """Reads once a second how every session stands, and ends those that may not go on."""

    def __init__(self, dispatcher: Dispatcher, database: Database) -> None:
        self._dispatcher = dispatcher
        self._database = database

    def loop(self) -> Loop:
        return Loop(name="sessions", interval_seconds=CHECK_SECONDS, limit=1, run_once=self._run_once)

    async def _run_once(self) -> int:
        await self.close_ended()
        dispatcher = self._dispatcher
        ids = list(dispatcher.sessions)
        for start in range(0, len(ids), CHECK_MAX):
            await self._check(ids[start : start + CHECK_MAX])
        now = trio.current_time()
        for session in dispatcher.sessions.values():
            session.forget_expired(now - FORGET_SECONDS)
        for application_id in [key for key, app in dispatcher.applications.items() if app.is_empty]:
            del dispatcher.applications[application_id]
        return 0

    async def _check(self, ids: Sequence[bytes]) -> None:
        sessions = self._dispatcher.sessions
        tokens = {session_id: sessions[session_id].token for session_id in ids if session_id in sessions}
        standings = await self._database.read(lambda tx: check_sessions(tx, tokens))
        for session_id, standing in standings.items():
            session = sessions.get(session_id)
            if session is not None and standing is not SessionStanding.LIVE:
                session.outbox.end(1008, _ENDINGS[standing])

    async def close_ended(self) -> None:
        """Store which sessions have ended."""
        ended, self._dispatcher.ended = self._dispatcher.ended, []
        try:
            for start in range(0, len(ended), CHECK_MAX):
                part = ended[start : start + CHECK_MAX]
                await self._database.write(partial(close_sessions, session_ids=part))
        except (OrbitError, DriverError):
            self._dispatcher.ended += ended
            raise


class Presence:
    """Registers this process, beats each 5 s, and forgets processes long silent."""

    def __init__(
        self, dispatcher: Dispatcher, database: Database, *, url: str, hint_address: str | None
    ) -> None:
        self._dispatcher = dispatcher
        self._database = database
        self._url = url
        self._hint_address = hint_address

    def loops(self) -> list[Loop]:
        # Jitter included, a beat never comes later than each 6 s; 15 s without one counts as dead.
        beat = Loop(
            name="presence",
            interval_seconds=DISPATCHER_HEARTBEAT_MS / 1_000,
            limit=1,
            run_once=self.beat,
        )
        return [beat, Loop(name="prune", interval_seconds=PRUNE_SECONDS, limit=100, run_once=self._prune)]

    async def beat(self) -> int:
        """Register, or tell that the process lives and how busy it is."""
        count = len(self._dispatcher.sessions)
        await self._database.write(
            lambda tx: beat_dispatcher(
                tx,
                self._dispatcher.dispatcher_id,
                url=self._url,
                hint_address=self._hint_address,
                sessions=count,
            )
        )
        return 0

    async def leave(self) -> None:
        """Let nobody look for this process any more."""
        await self._database.write(lambda tx: unregister_dispatcher(tx, self._dispatcher.dispatcher_id))

    async def _prune(self) -> int:
        return await self._database.write(prune_dispatchers)


class Cancels:
    """Tells workers of cancel intents soon after a hint; without one, the next renewal tells them."""

    def __init__(self, dispatcher: Dispatcher, database: Database) -> None:
        self._dispatcher = dispatcher
        self._database = database
        self._hinted: set[bytes] = set()
        self._wake = trio.Event()

    def hint(self, hint: Hint) -> None:
        """Note that a task of an application is to be cancelled."""
        self._hinted.add(hint.application)
        self._wake.set()

    async def run(self) -> None:
        """Read cancel intents after hints, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            hinted, self._hinted = self._hinted, set()
            with suppress(OrbitError, DriverError):  # the renewals tell it
                await self._tell(hinted)
            await trio.sleep(CANCEL_SECONDS)

    async def _tell(self, hinted: set[bytes]) -> None:
        holders = {
            attempt_id: session
            for session in all_sessions(self._dispatcher.hinted(*hinted))
            for attempt_id, held in session.held.items()
            if not held.cancel_told
        }
        attempts = list(holders)
        for start in range(0, len(attempts), CANCEL_MAX):
            part = attempts[start : start + CANCEL_MAX]
            found = await self._database.read(partial(cancelled_attempts, attempt_ids=part))
            for attempt_id, is_live in found.items():
                holders[attempt_id].tell_cancel(attempt_id, is_live=is_live)
