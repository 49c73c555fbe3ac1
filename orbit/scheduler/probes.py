"""When to look for work: soon after a hint, seldom when idle, not before a blocked queue can be claimed again."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Final

import trio

from orbit.pulse.probe import Pair, Probed, Wanted, probe
from orbit.runtime.database import Database
from orbit.runtime.logging import get_logger
from orbit.scheduler.application import Application
from orbit.scheduler.dispatcher import Dispatcher
from orbit.scheduler.pool import Pool
from orbit.scheduler.rotation import rotated

INTERVAL_MIN_SECONDS: Final = 0.005
INTERVAL_MAX_SECONDS: Final = 0.25
INTERVAL_GROWTH: Final = 1.5
# Hints that come closer together share a probe.
COALESCE_SECONDS: Final = 0.002
FAILURE_SECONDS: Final = 1.0
PAIRS_MAX: Final = 1_024


class Prober:
    """Probes the database for all applications of this process, one probe at a time."""

    def __init__(self, dispatcher: Dispatcher, database: Database) -> None:
        self._dispatcher = dispatcher
        self._database = database
        self._wake = trio.Event()
        self._interval = INTERVAL_MIN_SECONDS
        self._not_after = float("inf")
        self._turn = 0
        self.count = 0

    def soon(self) -> None:
        """Probe within 2 ms: something was committed, or somebody has room."""
        self._interval = INTERVAL_MIN_SECONDS
        self._wake.set()

    async def run(self) -> None:
        """Probe until cancelled."""
        while True:
            started = trio.current_time()
            self._wake = trio.Event()
            try:
                found = await self._probe(started)
            except Exception as error:  # noqa: BLE001 - whatever ails the database, look again
                get_logger().warning("probe_failed", error=error)
                await trio.sleep(FAILURE_SECONDS)
                continue
            self._pace(found)
            await self._pause(started)

    async def _probe(self, now: float) -> bool:
        """Look once; tell whether that found something to do."""
        self.count += 1
        pools, wanted = self._wanted(now)
        probed = await self._database.read(lambda tx: probe(tx, wanted))
        now = trio.current_time()
        self._not_after = float("inf")
        if probed.next_due_ms:
            self._not_after = now + probed.next_due_ms / 1_000
        for application_id, task_ids in probed.due.items():
            application = self._dispatcher.application(application_id)
            application.promote(task_ids)
            application.wake(now)
        claimable = [pool for application, pool in pools if self._apply(application, pool, probed, now)]
        return bool(claimable or probed.due)

    def _wanted(self, now: float) -> tuple[list[tuple[Application, Pool]], Wanted]:
        """Collect pools with room that aren't known to have work, as many as one probe may ask about.

        Those that are known to have some are given their turn: room may have come back, or a rest ended, unseen.
        """
        pools: list[tuple[Application, Pool]] = []
        keyed: dict[Pair, None] = {}
        keyless: dict[Pair, None] = {}
        applications = rotated(list(self._dispatcher.applications.values()), self._turn)
        self._turn += 1
        for application in applications if not self._dispatcher.is_stopping else ():
            for pool in application.pools.values():
                if pool.is_claiming or pool.not_before > now or not pool.has_room():
                    continue
                if pool.is_due(now):
                    application.wake(now)
                    continue
                pairs = keyed if pool.registration.concurrency_keys else keyless
                pairs.update(dict.fromkeys(pool.pairs))
                pools.append((application, pool))
                if len(keyed) + len(keyless) >= PAIRS_MAX:
                    return pools, Wanted(keyed=tuple(keyed), keyless=tuple(keyless))
        return pools, Wanted(keyed=tuple(keyed), keyless=tuple(keyless))

    def _apply(self, application: Application, pool: Pool, probed: Probed, now: float) -> bool:
        """Let a pool claim if one of its pairs can be claimed now; note when a blocked one can be."""
        claimable = probed.keyed if pool.registration.concurrency_keys else probed.keyless
        if not claimable:
            return False
        waits: list[int] = []
        for pair in pool.pairs:
            if pair not in claimable:
                continue
            blocked = probed.blocked.get(pair[0])
            if blocked is None:
                pool.is_wanted = True
                application.wake(now)
                return True
            if blocked.wait_ms is not None:
                waits.append(blocked.wait_ms)
        if waits:
            self._not_after = min(self._not_after, now + min(waits) / 1_000)
        return False

    def _pace(self, found: bool) -> None:  # noqa: FBT001 - one reader, two words
        if found:
            self._interval = INTERVAL_MIN_SECONDS
        else:
            self._interval = min(self._interval * INTERVAL_GROWTH, INTERVAL_MAX_SECONDS)

    async def _pause(self, started: float) -> None:
        """Wait for the next probe: at its time, earlier when something becomes due or a hint comes."""
        until = trio.current_time() + self._interval * random.uniform(0.8, 1.2)
        until = min(until, self._not_after, *self._resting())
        with trio.move_on_at(max(until, started + COALESCE_SECONDS)):
            await self._wake.wait()
        await trio.sleep_until(started + COALESCE_SECONDS)

    def _resting(self) -> Iterable[float]:
        now = trio.current_time()
        for application in self._dispatcher.applications.values():
            for pool in application.pools.values():
                if pool.not_before > now:
                    yield pool.not_before
