"""A dispatcher as a whole: its connections to the database, its sockets, its loops, and their orderly end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from orbit.domain.errors import OrbitError
from orbit.domain.ids import new_id
from orbit.runtime.hints import HintKind, HintReceiver, HintSender
from orbit.runtime.logging import get_logger
from orbit.runtime.runner import run_loop
from orbit.runtime.settings import Settings
from orbit.scheduler.databases import Databases
from orbit.scheduler.dispatcher import Dispatcher
from orbit.scheduler.listener import Listener, open_listeners
from orbit.scheduler.probes import Prober
from orbit.scheduler.upkeep import Cancels, Presence, SessionChecks
from orbit.store.failures import DriverError

# The stop takes at most their sum: answer what has arrived, then let the connections close.
ANSWER_SECONDS: Final = 6.0
CLOSE_SECONDS: Final = 5.0
LEAVE_SECONDS: Final = 2.0
STOP_SECONDS: Final = ANSWER_SECONDS + CLOSE_SECONDS + 2 * LEAVE_SECONDS
POLL_SECONDS: Final = 0.02
# Results come by the thousand; a neighbour that waits for a key or a permit hears of them this often.
RELEASE_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A serving dispatcher."""

    dispatcher: Dispatcher
    listener: Listener
    prober: Prober
    port: int
    url: str


@asynccontextmanager
async def serving(settings: Settings, databases: Databases) -> AsyncIterator[Service]:
    """Serve workers for as long as the block lasts; leaving it stops in order, within `STOP_SECONDS`.

    Raises:
        OSError: an address can't be had.
        OrbitError: the database can't be reached.
    """
    dispatcher = Dispatcher(
        databases, dispatcher_id=new_id(), lease_ms=settings.lease_ms, renew_ms=settings.renew_ms
    )
    sockets = await open_listeners(
        settings.dispatch_addr.host,
        settings.dispatch_addr.port,
        certificate=settings.tls_cert,
        key=settings.tls_key,
    )
    port = _port(sockets[0])
    hints = await HintReceiver.open(settings.hint_addr.host, settings.hint_addr.port)
    try:
        async with trio.open_nursery() as nursery:
            url = settings.advertised_dispatch_url(port)
            parts = _Parts(dispatcher, databases, url=url, hints=hints)
            await parts.presence.beat()
            nursery.start_soon(parts.run)
            accepting = trio.CancelScope()
            nursery.start_soon(_accept, parts.listener, sockets, nursery, accepting)
            yield Service(
                dispatcher=dispatcher, listener=parts.listener, prober=parts.prober, port=port, url=url
            )
            await parts.stop(accepting)
            nursery.cancel_scope.cancel()
    finally:
        hints.close()


class _Parts:
    """The loops of one dispatcher."""

    def __init__(
        self, dispatcher: Dispatcher, databases: Databases, *, url: str, hints: HintReceiver
    ) -> None:
        self._dispatcher = dispatcher
        self._hints = hints
        control = databases.control
        self.listener = Listener(dispatcher, control)
        self.prober = Prober(dispatcher, control)
        self.presence = Presence(dispatcher, control, url=url, hint_address=hints.address)
        self._checks = SessionChecks(dispatcher, control)
        self._cancels = Cancels(dispatcher, control)
        self._releases = HintSender(control, own=hints.address, pace_seconds=RELEASE_SECONDS)
        dispatcher.probe_soon = self.prober.soon
        dispatcher.tell_release = partial(self._releases.send, HintKind.RELEASE)

    async def run(self) -> None:
        """Run until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._dispatcher.run)
            nursery.start_soon(self.prober.run)
            nursery.start_soon(self._cancels.run)
            nursery.start_soon(self._releases.run)
            nursery.start_soon(self._hear)
            for loop in (self._checks.loop(), *self.presence.loops()):
                nursery.start_soon(run_loop, loop)

    async def stop(self, accepting: trio.CancelScope) -> None:
        """Answer what has arrived, send workers elsewhere (1001), leave; each step within its bound."""
        dispatcher, log = self._dispatcher, get_logger()
        with trio.CancelScope(shield=True):
            accepting.cancel()
            dispatcher.stop_claiming()
            log.info("dispatcher_stopping", sessions=len(dispatcher.sessions))
            answered = await _until(lambda: dispatcher.is_idle, ANSWER_SECONDS)
            for connection in self.listener.connections:
                connection.outbox.end(1001, "shutting down")
            closed = await _until(lambda: not self.listener.connections, CLOSE_SECONDS)
            await _leave(self._checks.close_ended, LEAVE_SECONDS)
            await _leave(self.presence.leave, LEAVE_SECONDS)
            log.info("dispatcher_stopped", all_answered=answered, all_closed=closed)

    async def _hear(self) -> None:
        while True:
            try:
                async for hint in self._hints:
                    if hint.kind is HintKind.CANCEL:
                        self._cancels.hint(hint)
                    elif hint.kind is HintKind.RELEASE:
                        self._dispatcher.hint_release(hint)
                    else:
                        self._dispatcher.hint(hint)
            except OSError as error:
                get_logger().warning("hints_failed", error=error)  # probes come anyway
                await trio.sleep(1.0)


async def _accept(
    listener: Listener,
    sockets: object,
    nursery: trio.Nursery,
    scope: trio.CancelScope,
) -> None:
    """Accept until the scope is cancelled; connections go on in the outer nursery."""
    with scope:
        await trio.serve_listeners(listener.serve, sockets, handler_nursery=nursery)  # type: ignore[arg-type]


async def _until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for a condition that other tasks bring about; False when the time is over."""
    with trio.move_on_after(seconds):
        while not condition():  # noqa: ASYNC110 - what it waits for has many causes, and this happens once
            await trio.sleep(POLL_SECONDS)
    return condition()


async def _leave(work: Callable[[], Awaitable[object]], seconds: float) -> None:
    """Say goodbye to the database if it listens: nothing depends on it."""
    try:
        with trio.move_on_after(seconds):
            await work()
    except (OrbitError, DriverError) as error:
        get_logger().info("goodbye_failed", error=error)


def _port(listener: object) -> int:
    socket = getattr(listener, "socket", None) or listener.transport_listener.socket  # type: ignore[attr-defined]
    port: int = socket.getsockname()[1]
    return port
