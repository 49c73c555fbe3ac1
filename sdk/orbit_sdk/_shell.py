"""The trio shell of a worker: runs handlers, keeps one connection up, drains; every rule is in the session core."""

from __future__ import annotations

import logging
import signal
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import trio

from orbit_sdk._connection import Connection, open_connection
from orbit_sdk._dialer import Dialer, is_hopeless
from orbit_sdk._errors import (
    APIError,
    ConnectionLost,
    OrbitError,
    ProtocolError,
    SessionRefused,
    TransportError,
)
from orbit_sdk._handlers import LEASE_LAPSED, WORKER_SHUTDOWN, Handler, Running, build_execution
from orbit_sdk._held import (
    Action,
    AskCancel,
    DrainedByServer,
    Note,
    Ready,
    Reconnect,
    Run,
    Stop,
    StopReason,
)
from orbit_sdk._outcomes import HandlerSignal
from orbit_sdk._session import SessionCore
from orbit_sdk._signals import on_signals

WELCOME_SECONDS: Final = 10.0
# After the grace period: time to heed a cancellation, then time to report what came of it; at most the grace again.
STOP_SECONDS: Final = 5.0
FLUSH_SECONDS: Final = 5.0
# How long an idle worker waits for the server to confirm that nothing is in flight.
LEAVE_SECONDS: Final = 3.0

log = logging.getLogger("orbit_sdk.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSettings:
    """What the shell needs to know besides the core."""

    token: str
    handlers: Mapping[tuple[str, str], Handler]
    capacity: int
    grace_seconds: float
    ssl_context: ssl.SSLContext | None = None


class Shell:
    """Runs one worker until it has drained or cannot go on."""

    def __init__(self, core: SessionCore, dialer: Dialer, settings: ShellSettings) -> None:
        self._core = core
        self._dialer = dialer
        self._settings = settings
        self._threads = trio.CapacityLimiter(settings.capacity)
        self._running: dict[str, Running] = {}
        self._wake = trio.Event()
        self._draining = trio.Event()
        self._ended = trio.Event()
        self._connecting = trio.CancelScope()
        self._handling = trio.CancelScope()
        self._is_connected = False
        self._is_drained = False
        self._is_interrupted = False
        self._fatal: Exception | None = None
        self._task_status: trio.TaskStatus[None] | None = None
        self._handlers: trio.Nursery

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Work until SIGTERM, Ctrl-C, `drain` or cancellation, then drain. Raises what made going on impossible."""
        self._task_status = task_status
        with on_signals(self._on_signal):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._run_shielded)
                try:
                    await self._ended.wait()
                finally:
                    self.drain()
        if self._fatal is not None:
            raise self._fatal
        if self._is_interrupted:
            raise KeyboardInterrupt
        if self._task_status is not None:
            # Drained before it was ever connected: that is an end, not a failure to start.
            self._task_status.started()

    def _on_signal(self, number: int) -> None:
        """SIGTERM drains, so does Ctrl-C; a second Ctrl-C does not wait for handlers any longer."""
        if number == signal.SIGINT:
            if self._is_interrupted:
                self._give_up()
            self._is_interrupted = True
        self.drain()

    @property
    def has_drained(self) -> bool:
        """Whether it has ended with nothing left to report."""
        return self._ended.is_set() and self._core.is_idle

    def drain(self) -> None:
        """Take no more work, finish what runs, report everything, then end. Safe to call again."""
        if not self._draining.is_set():
            self._draining.set()
            self._core.drain()
            self._progress()

    async def _run_shielded(self) -> None:
        try:
            with trio.CancelScope(shield=True):
                async with trio.open_nursery() as loops:
                    loops.start_soon(self._enforce_grace)
                    with self._handling:
                        async with trio.open_nursery() as self._handlers:
                            with self._connecting:
                                await self._stay_connected()
                            # Without a connection nothing can be reported, but running work still gets its time.
                            self.drain()
                    loops.cancel_scope.cancel()
        finally:
            if self._core.held_count:
                log.warning(
                    "ended with %d attempts unreported; the server decides them", self._core.held_count
                )
            self._ended.set()

    async def _enforce_grace(self) -> None:
        await self._draining.wait()
        grace_seconds = self._settings.grace_seconds
        await trio.sleep(grace_seconds)
        if self._running:
            for running in self._running.values():
                running.stop(WORKER_SHUTDOWN, "the worker's grace period ended")
            await trio.sleep(min(STOP_SECONDS, grace_seconds))
        self._abandon_threads()
        await trio.sleep(min(FLUSH_SECONDS, grace_seconds))
        self._give_up()

    def _abandon_threads(self) -> None:
        for running in self._running.values():
            running.abandon()

    def _give_up(self) -> None:
        self._abandon_threads()
        self._connecting.cancel()
        self._handling.cancel()

    # --- connections

    async def _stay_connected(self) -> None:
        while True:
            url: str | None = None
            try:
                url = await self._dialer.choose()
                await self._serve(url)
            except (ProtocolError, SessionRefused) as exc:
                self._fatal = exc
            except APIError as exc:
                if is_hopeless(exc):
                    self._fatal = exc
                log.warning("no session: %s", exc)
            except TransportError as exc:
                log.warning("session ended: %s", exc)
            if self._fatal is not None:
                log.error("the worker cannot go on: %s", self._fatal)
                return
            self._dialer.lost(url)
            self._progress()
            await trio.sleep(self._dialer.pause(at_most=self._core.patience))

    async def _serve(self, url: str) -> None:
        try:
            await self._serve_in_nursery(url)
        except BaseExceptionGroup as group:
            raise _deciding_error(group) from group

    async def _serve_in_nursery(self, url: str) -> None:
        settings = self._settings
        async with trio.open_nursery() as nursery:
            connection = await open_connection(nursery, url, settings.token, ssl_context=settings.ssl_context)
            try:
                self._core.connect()
                self._is_connected, self._is_drained = True, False
                nursery.start_soon(self._send, connection)
                nursery.start_soon(connection.keep_alive)
                nursery.start_soon(self._expect_welcome)
                await self._receive(connection)
            finally:
                self._is_connected = False
                self._core.disconnect()
                await connection.close(1000 if self._draining.is_set() else 1001)
                nursery.cancel_scope.cancel()

    async def _expect_welcome(self) -> None:
        await trio.sleep(WELCOME_SECONDS)
        if not self._core.is_open:
            raise ConnectionLost(1006, f"no welcome within {WELCOME_SECONDS:.0f} s")

    async def _receive(self, connection: Connection) -> None:
        while True:
            frame = await connection.receive()
            for action in self._core.receive(frame, trio.current_time()):
                self._apply(action)
            self._progress()

    async def _send(self, connection: Connection) -> None:
        """Send all that is ready, one frame at a time, so that renewals overtake a backlog of results."""
        while True:
            for action in self._core.tick(trio.current_time()):
                self._apply(action)
            frame = self._core.next_frame()
            if frame is not None:
                await connection.send(frame)
                continue
            self._wake = trio.Event()
            with trio.move_on_at(self._core.next_tick()):
                await self._wake.wait()

    # --- actions

    def _apply(self, action: Action) -> None:
        if isinstance(action, Run):
            self._start_handler(action)
        elif isinstance(action, Stop):
            self._stop_handler(action)
        elif isinstance(action, AskCancel):
            if action.attempt_id in self._running:
                self._running[action.attempt_id].execution.cancelled.set()
        elif isinstance(action, Ready):
            self._dialer.succeeded()
            if self._task_status is not None:
                self._task_status.started()
                self._task_status = None
        elif isinstance(action, DrainedByServer):
            self._is_drained = True
        elif isinstance(action, Reconnect):
            raise ConnectionLost(1013, action.reason)
        elif isinstance(action, Note):
            log.warning("%s: %s", action.event, action.fields)

    def _start_handler(self, action: Run) -> None:
        held = action.held
        task = held.assign.task
        handler = self._settings.handlers[task.handler, task.handler_version]
        execution = build_execution(held.assign, handler, lease=held.lease, deadline=action.deadline)
        running = Running(handler, execution)
        self._running[execution.attempt_id] = running
        self._handlers.start_soon(self._run_handler, running)

    def _stop_handler(self, action: Stop) -> None:
        running = self._running.get(action.attempt_id)
        if running is None:
            return
        if action.reason is StopReason.LOST:
            log.warning("attempt %s of task %s is lost", action.attempt_id, running.execution.task.id)
            running.stop("ATTEMPT_LOST", "the attempt belongs to this worker no longer")
        else:
            running.stop(LEASE_LAPSED, "the lease ended by the worker's clock")

    async def _run_handler(self, running: Running) -> None:
        outcome = await running.run(limiter=self._threads, output_limit=self._core.output_limit)
        execution = running.execution
        del self._running[execution.attempt_id]
        self._core.finish(execution.attempt_id, outcome)
        if running.error is not None:
            self._look_at_error(running.error, execution.task.id)
        self._progress()

    def _look_at_error(self, error: BaseException, task_id: str) -> None:
        if isinstance(error, KeyboardInterrupt):
            # Ctrl-C can strike in whatever task is running; it means the worker, not the handler.
            self._is_interrupted = True
            self.drain()
        elif not isinstance(error, HandlerSignal):
            log.warning("the handler of task %s raised", task_id, exc_info=error)

    def _progress(self) -> None:
        """Wake the sender, and end the connection once a draining worker has nothing left."""
        self._wake.set()
        if not self._draining.is_set():
            return
        if not self._core.is_idle:
            self._connecting.deadline = float("inf")
        elif self._is_drained or not self._is_connected:
            self._connecting.cancel()
        elif self._connecting.deadline == float("inf"):
            self._connecting.deadline = trio.current_time() + LEAVE_SECONDS


def _deciding_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to act on when several tasks of a connection failed: the gravest, and nothing foreign is hidden."""
    cancelled, others = group.split(trio.Cancelled)
    leaves = [] if others is None else list(_leaves(others))
    for leaf in leaves:
        if not isinstance(leaf, OrbitError):
            return group
    if cancelled is not None:
        return cancelled
    for kind in (ProtocolError, SessionRefused, APIError):
        for leaf in leaves:
            if isinstance(leaf, kind):
                return leaf
    return leaves[0]


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
