"""The entry of orbit-recover. Any number may run; they share the work without harm."""

from __future__ import annotations

import sys
from typing import Final

import trio

from orbit.recovery.beat import BeatLoop
from orbit.recovery.expire import ExpireLoop
from orbit.recovery.retire import retire_loops
from orbit.runtime.database import Database
from orbit.runtime.logging import get_logger
from orbit.runtime.process import Process, await_database, run_process
from orbit.runtime.runner import Loop, run_loop

# One for the beat, so that it never waits for work; one for the work. The reader finds candidates.
WRITERS: Final = 2
READERS: Final = 1
# A transaction in hand is finished, whatever it waits for.
DRAIN_SECONDS: Final = 15.0


def main() -> None:
    """Run orbit-recover until SIGTERM; never returns."""
    sys.exit(run_process("recover", run_recovery, drain_seconds=DRAIN_SECONDS))


async def run_recovery(process: Process) -> None:
    """Run all loops until `process.stop` is set."""
    dsn = process.settings.need_dsn()
    async with Database(dsn, writers=WRITERS, readers=READERS, name="recover", report=_report) as database:
        if not await await_database(process, database):
            return
        async with trio.open_nursery() as nursery:
            for loop in recovery_loops(database, renew_ms=process.settings.renew_ms):
                nursery.start_soon(run_loop, loop)
            process.ready()
            await process.stop.wait()
            nursery.cancel_scope.cancel()


def recovery_loops(database: Database, *, renew_ms: int) -> list[Loop]:
    """Return every loop of this process."""
    beat = BeatLoop(database, renew_ms=renew_ms)
    return [beat.loop(), ExpireLoop(database).loop(), *retire_loops(database)]


def _report(event: str, error: BaseException) -> None:
    get_logger().error(event, exc_info=error)


if __name__ == "__main__":
    main()
