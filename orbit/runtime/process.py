"""A process from its first line to its exit code: settings, logging, signals, systemd's notify protocol, bounded drain.

Exit codes: 0 stopped as asked · 1 bad configuration, unreachable database, unknown schema, address in use, a failure ·
2 wrong usage.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from orbit.domain.errors import OrbitError
from orbit.runtime.database import Database
from orbit.runtime.logging import configure_logging, get_logger, redact
from orbit.runtime.settings import Settings, SettingsError, load_settings
from orbit.runtime.usage import answer_arguments
from orbit.store.failures import DriverError
from orbit.store.schema import SchemaMismatch, require_schema

CONNECT_SECONDS: Final = 30.0
CONNECT_PAUSE_SECONDS: Final = 1.0
# The event loop gets the interpreter back from a database thread after this long: a tenth of Python's default, because
# otherwise each of its system calls may cost it 5 ms (measured: a third to a half more submits per second).
SWITCH_INTERVAL_SECONDS: Final = 0.0005


class CannotStart(Exception):
    """The process can't serve; the text is one line that says why."""


class Notifier:
    """Tells systemd how the process is (NOTIFY_SOCKET); without systemd it says nothing."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        watchdog = environ.get("WATCHDOG_USEC", "")
        is_mine = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        # Half of the time that systemd allows, as its manual advises.
        self._watchdog_seconds = int(watchdog) / 2e6 if watchdog.isdecimal() and is_mine else 0.0

    def tell(self, state: str) -> None:
        """Send a state such as READY=1; a notify socket that is gone must not end the process."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as client:
                client.sendto(state.encode(), self._address)
        except OSError as error:
            get_logger().warning("notify_failed", error=error)

    async def watchdog(self) -> None:
        """Show the event loop's life while systemd wants to see it."""
        while self._watchdog_seconds:
            self.tell("WATCHDOG=1")
            await trio.sleep(self._watchdog_seconds)


@dataclass(frozen=True, slots=True)
class Process:
    """What a process's body gets: its settings, the event that asks it to stop, and the way to say that it serves."""

    settings: Settings
    stop: trio.Event
    notifier: Notifier

    def ready(self, **facts: object) -> None:
        """Say that the process serves now."""
        get_logger().info("ready", **facts)
        self.notifier.tell("READY=1")


Body = Callable[[Process], Awaitable[None]]


def run_process(name: str, body: Body, *, drain_seconds: float) -> int:
    """Run a process to its end and return its exit code.

    SIGTERM or SIGINT sets `stop`; `body` should then return. A second signal, or `drain_seconds` later, cancels it.
    """
    if len(sys.argv) > 1:
        return answer_arguments(name, sys.argv[1:])
    try:
        settings = load_settings(os.environ)
    except SettingsError as error:
        return _fail(name, str(error))
    configure_logging(log_format=settings.log_format, log_level=settings.log_level, process=name)
    for warning in settings.warnings:
        get_logger().warning("configuration", problem=warning)
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    process = Process(settings, trio.Event(), Notifier(os.environ))
    try:
        trio.run(partial(_run, process, body, drain_seconds))
    except Exception as error:  # noqa: BLE001 - the last word of the process
        first = _first(error)
        if isinstance(first, CannotStart | SettingsError):
            return _fail(name, str(first))
        get_logger().error("process_failed", exc_info=error)
        return 1
    get_logger().info("stopped")
    return 0


async def await_database(process: Process, database: Database) -> bool:
    """Wait until the database answers with the schema of this release, for about 30 s; False if told to stop.

    Raises: CannotStart in one line if it doesn't; at once for an unknown schema.
    """
    problem = "no answer"
    give_up_at = trio.current_time() + CONNECT_SECONDS
    while not process.stop.is_set():
        try:
            await database.read(require_schema)
        except SchemaMismatch as error:
            raise CannotStart(str(error)) from None
        except (OrbitError, DriverError) as error:
            problem = redact(str(error.__cause__ or error))
        else:
            return True
        if trio.current_time() >= give_up_at:
            raise CannotStart(f"the database can't be reached: {problem}")
        get_logger().warning("database_unreachable", problem=problem)
        with trio.move_on_after(CONNECT_PAUSE_SECONDS):
            await process.stop.wait()
    return False


async def _run(process: Process, body: Body, drain_seconds: float) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(process.notifier.watchdog)
        await nursery.start(_obey_signals, process, nursery.cancel_scope, drain_seconds)
        await body(process)
        nursery.cancel_scope.cancel()


async def _obey_signals(
    process: Process,
    scope: trio.CancelScope,
    drain_seconds: float,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            if process.stop.is_set():
                scope.cancel()
                return
            get_logger().info("stopping", signal=signal.Signals(number).name)
            process.notifier.tell("STOPPING=1")
            scope.deadline = trio.current_time() + drain_seconds
            process.stop.set()


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _fail(name: str, line: str) -> int:
    sys.stderr.write(f"orbit-{name}: {line}\n")
    return 1
