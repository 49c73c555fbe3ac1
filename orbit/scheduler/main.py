"""The entry of orbit-dispatch."""

from __future__ import annotations

import sys
from typing import Final

from orbit.domain.ids import id_text
from orbit.runtime.logging import get_logger
from orbit.runtime.process import CannotStart, Process, await_database, run_process
from orbit.scheduler.databases import open_databases
from orbit.scheduler.service import STOP_SECONDS, serving

# After the service's own bound: transactions that were sent to the database are waited for.
DRAIN_SECONDS: Final = STOP_SECONDS + 12.0


def main() -> None:
    """Run orbit-dispatch until SIGTERM; never returns."""
    sys.exit(run_process("dispatch", run_dispatch, drain_seconds=DRAIN_SECONDS))


async def run_dispatch(process: Process) -> None:
    """Serve workers until `process.stop` is set."""
    settings = process.settings
    async with open_databases(settings.need_dsn(), report=_report) as databases:
        if not await await_database(process, databases.control):
            return
        try:
            async with serving(settings, databases) as service:
                process.ready(url=service.url, dispatcher_id=id_text(service.dispatcher.dispatcher_id))
                await process.stop.wait()
        except OSError as error:
            raise CannotStart(
                f"ORBIT_DISPATCH_ADDR: can't listen on {settings.dispatch_addr}: {error}"
            ) from None


def _report(event: str, error: BaseException) -> None:
    get_logger().error(event, exc_info=error)
