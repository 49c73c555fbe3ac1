"""The loop that ends lapsed leases and passed deadlines."""

from __future__ import annotations

import random

from orbit.domain.errors import StoreError
from orbit.pulse.expire import Expired, ExpireReport, expire, find_expired
from orbit.runtime.database import Database
from orbit.runtime.logging import get_logger
from orbit.runtime.runner import Loop

EXPIRE_LIMIT = 64
EXPIRE_SECONDS = 0.5


class ExpireLoop:
    """Finds candidates without locks, then ends them application by application, each judged again under the lock.

    Recoverers may run in any number: what another one was quicker with is no longer there to do. It asks neither for
    pauses nor for limits nor for rates.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def loop(self) -> Loop:
        return Loop(
            name="expire", interval_seconds=EXPIRE_SECONDS, limit=EXPIRE_LIMIT, run_once=self.run_once
        )

    async def run_once(self) -> int:
        """End up to EXPIRE_LIMIT attempts and as many waiting tasks; return how many were ended.

        Raises:
            StoreError: the database is unavailable or contended; other applications were tried all the same.
        """
        found = await self._database.read(lambda tx: find_expired(tx, EXPIRE_LIMIT))
        applications = list(found)
        random.shuffle(applications)  # two recoverers seldom start with the same one
        done, failed = 0, None
        for application_id in applications:
            try:
                done += await self._expire(application_id, found[application_id])
            except StoreError as error:
                failed = error
        if failed is not None:
            raise failed
        return done

    async def _expire(self, application_id: bytes, candidates: Expired) -> int:
        try:
            return await self._write(application_id, candidates)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - the guilty row is found by trying each alone
            parts = _split(candidates)
            if len(parts) < 2:
                get_logger().error("expiry_failed", application_id=application_id, error=error)
                return 0
        # One row that can't be ended must not keep the others alive.
        return sum([await self._expire(application_id, part) for part in parts])

    async def _write(self, application_id: bytes, candidates: Expired) -> int:
        report: ExpireReport = await self._database.write(lambda tx: expire(tx, application_id, candidates))
        if report.attempts or report.tasks:
            get_logger().info(
                "expired", application_id=application_id, attempts=report.attempts, tasks=report.tasks
            )
        return report.attempts + report.tasks


def _split(candidates: Expired) -> list[Expired]:
    singles = [Expired(attempt_ids=[attempt_id]) for attempt_id in candidates.attempt_ids]
    return singles + [Expired(task_ids=[task_id]) for task_id in candidates.task_ids]
