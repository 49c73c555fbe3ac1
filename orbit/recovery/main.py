"""`orbit-recover`: process entry. Any number may run; they share the work without harm."""

from __future__ import annotations

import os
import signal
import sys

import trio

from orbit.domain.errors import Unavailable
from orbit.recovery.beat import BeatLoop
from orbit.recovery.expire import ExpireLoop
from orbit.recovery.retire import retire_loops
from orbit.runtime.database import Database
from orbit.runtime.logging import configure_logging, get_logger
from orbit.runtime.runner import Loop, run_loop
from orbit.runtime.settings import Settings, SettingsError, load_settings
from orbit.store.failures import DriverError, describe
from orbit.store.schema import SchemaMismatch, require_schema

# One for the beat, so that it never waits for work; one for the work.
WRITERS = 2
READERS = 1
CONNECT_TRIES = 10
CONNECT_PAUSE_SECONDS = 1.0


def main() -> None:
    """Run until SIGTERM or SIGINT; exit 0 then, 1 when it can't start."""
    try:
        settings = load_settings(os.environ)
        settings.need_dsn()
        configure_logging(log_format=settings.log_format, log_level=settings.log_level, process="recover")
        trio.run(serve, settings)
    except (SettingsError, SchemaMismatch, Unavailable) as error:
        sys.exit(f"orbit-recover: {error}")
    except DriverError as error:
        sys.exit(f"orbit-recover: {describe(error)}")


async def serve(settings: Settings) -> None:
    """Check the schema, then run all loops until a signal asks to stop; transactions in hand are finished."""
    for warning in settings.warnings:
        get_logger().warning("setting_in_doubt", text=warning)
    async with Database(settings.need_dsn(), writers=WRITERS, readers=READERS, name="recover") as database:
        await _check_schema(database)
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                for loop in recovery_loops(database, settings):
                    nursery.start_soon(run_loop, loop)
                get_logger().info("ready")
                async for _ in signals:
                    get_logger().info("stopping")
                    nursery.cancel_scope.cancel()
                    break


def recovery_loops(database: Database, settings: Settings) -> list[Loop]:
    """Return every loop of this process."""
    beat = BeatLoop(database, renew_ms=settings.renew_ms)
    return [beat.loop(), ExpireLoop(database).loop(), *retire_loops(database)]


async def _check_schema(database: Database) -> None:
    for attempt in range(CONNECT_TRIES):
        try:
            await database.read(require_schema)
            return
        except (Unavailable, DriverError):
            if attempt == CONNECT_TRIES - 1:
                raise
            await trio.sleep(CONNECT_PAUSE_SECONDS)


if __name__ == "__main__":
    main()
