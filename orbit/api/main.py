"""The entry of orbit-api."""

from __future__ import annotations

import sys
from typing import Final

import trio

from orbit.api.access_log import AccessLog
from orbit.api.app import OrbitApi
from orbit.api.routes.table import ROUTES
from orbit.api.server import GRACEFUL_SECONDS, HttpServer, Tls
from orbit.api.services import READERS, WRITERS, open_services
from orbit.runtime.database import Database
from orbit.runtime.logging import get_logger
from orbit.runtime.process import CannotStart, Process, await_database, run_process
from orbit.runtime.settings import Settings

# After the server's own bound: commands that were sent to the database are waited for.
DRAIN_SECONDS: Final = GRACEFUL_SECONDS + 12.0


def main() -> None:
    """Run orbit-api until SIGTERM; never returns."""
    sys.exit(run_process("api", run_api, drain_seconds=DRAIN_SECONDS))


async def run_api(process: Process) -> None:
    """Serve the HTTP API until `process.stop` is set."""
    settings = process.settings
    async with Database(settings.need_dsn(), writers=WRITERS, readers=READERS, report=_report) as database:
        if not await await_database(process, database):
            return
        services = open_services(database)
        access_log = AccessLog(log_format=settings.log_format)
        app = OrbitApi(services, ROUTES, access_log)
        server = HttpServer(app, settings.http_addr, tls=_tls(settings))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(services.hints.run)
            nursery.start_soon(access_log.run)
            try:
                await _serve(process, server)
            finally:
                nursery.cancel_scope.cancel()


async def _serve(process: Process, server: HttpServer) -> None:
    async with trio.open_nursery() as serving:
        try:
            address = await serving.start(server.serve, process.stop)
        except OSError as error:
            raise CannotStart(
                f"ORBIT_HTTP_ADDR: can't listen on {process.settings.http_addr}: {error}"
            ) from None
        process.ready(address=str(address))


def _tls(settings: Settings) -> Tls | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return Tls(cert=settings.tls_cert, key=settings.tls_key)


def _report(event: str, error: BaseException) -> None:
    get_logger().error(event, exc_info=error)
