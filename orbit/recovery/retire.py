"""Loops that delete idle lanes and registrations of workers long gone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from orbit.pulse.retire import retire_lanes, retire_workers
from orbit.runtime.database import Database
from orbit.runtime.runner import Loop
from orbit.store.sql.retirement import select_gone_workers, select_idle_lanes
from orbit.store.transaction import Tx

LANES_LIMIT = 200
WORKERS_LIMIT = 200
LANES_SECONDS = 20.0
WORKERS_SECONDS = 120.0

Find = Callable[[Tx, int], list[tuple[bytes, bytes]]]
Retire = Callable[[Tx, bytes, Sequence[bytes]], int]


class RetireLoop:
    """Finds candidates without locks, then deletes them application by application, each judged again."""

    def __init__(self, database: Database, find: Find, retire: Retire, *, limit: int) -> None:
        self._database = database
        self._find = find
        self._retire = retire
        self._limit = limit

    async def run_once(self) -> int:
        """Delete up to `limit` rows and return how many; rows that were kept don't count as work."""
        found = await self._database.read(lambda tx: self._find(tx, self._limit))
        grouped: dict[bytes, list[bytes]] = defaultdict(list)
        for application_id, row_id in found:
            grouped[application_id].append(row_id)
        done = 0
        for application_id, row_ids in grouped.items():
            done += await self._retire_group(application_id, row_ids)
        return done

    async def _retire_group(self, application_id: bytes, row_ids: Sequence[bytes]) -> int:
        return await self._database.write(lambda tx: self._retire(tx, application_id, row_ids))


def retire_loops(database: Database) -> list[Loop]:
    """Return the loops that clear away lanes and workers."""
    lanes = RetireLoop(database, select_idle_lanes, retire_lanes, limit=LANES_LIMIT)
    workers = RetireLoop(database, select_gone_workers, retire_workers, limit=WORKERS_LIMIT)
    return [
        Loop(name="idle_lanes", interval_seconds=LANES_SECONDS, limit=LANES_LIMIT, run_once=lanes.run_once),
        Loop(
            name="gone_workers",
            interval_seconds=WORKERS_SECONDS,
            limit=WORKERS_LIMIT,
            run_once=workers.run_once,
        ),
    ]
