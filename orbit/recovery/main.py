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

# A transaction in hand is finished, whatever it waits for.
DRAIN_SECONDS: Final = 15.0


def main() -> None:
    """Run orbit-recover until SIGTERM; never returns."""
    sys.exit(run_process("recover", run_recovery, drain_seconds=DRAIN_SECONDS))


async def run_recovery(process: Process) -> None:
    """Run all loops until `process.stop` is set."""
    dsn = process.settings.need_dsn()
    # Two connections: the beat never waits for work.
    async with (
        Database(dsn, writers=1, readers=0, name="beat", report=_report) as beats,
        Database(dsn, writers=1, readers=0, name="work", report=_report) as work,
    ):
        if not await await_database(process, work):
            return
        async with trio.open_nursery() as nursery:
            for loop in recovery_loops(work, beats, renew_ms=process.settings.renew_ms):
                nursery.start_soon(run_loop, loop)
            process.ready()
            await process.stop.wait()
            nursery.cancel_scope.cancel()


def recovery_loops(work: Database, beats: Database, *, renew_ms: int) -> list[Loop]:
    """Return every loop of this process; `beats` is for the recovery clock alone."""
    beat = BeatLoop(beats, renew_ms=renew_ms)
    return [beat.loop(), ExpireLoop(work).loop(), *retire_loops(work)]


def _report(event: str, error: BaseException) -> None:
    get_logger().error(event, exc_info=error)


if __name__ == "__main__":
    main()
