"""The recovery clock's beat; expiry judges nothing without a fresh one."""

from __future__ import annotations

from orbit.pulse.clock import Why, beat, beat_interval_ms
from orbit.runtime.database import Database
from orbit.runtime.logging import get_logger
from orbit.runtime.runner import Loop


class BeatLoop:
    """Beats in database time; logs when leases get grace and when that ends."""

    def __init__(self, database: Database, *, renew_ms: int) -> None:
        self._database = database
        self._renew_ms = renew_ms
        self._why: Why | None = None

    def loop(self) -> Loop:
        # One beat is one item: a limit above it means that the interval is kept.
        return Loop(
            name="beat",
            interval_seconds=beat_interval_ms(self._renew_ms) / 1_000,
            limit=2,
            run_once=self.run_once,
        )

    async def run_once(self) -> int:
        found = await self._database.write(lambda tx: beat(tx, self._renew_ms))
        if found.why is not None and found.why is not self._why:
            get_logger().warning("leases_get_grace", why=found.why.value, until=found.grace_until)
        elif found.why is None and self._why is not None:
            get_logger().info("grace_is_counting", until=found.grace_until)
        self._why = found.why
        return 1
