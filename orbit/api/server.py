"""The HTTP server: hypercorn's parts on trio, in this process, with a guard around each connection.

Hypercorn's own loop isn't used: under it a stray byte after a refused upgrade ends the process, idle connections are
never closed under quart-trio, and a peer that doesn't read delays the exit without limit.
"""

from __future__ import annotations

import math
import ssl
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import trio
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext

from orbit.api.bridge import Application, Plain
from orbit.api.connection import Connection, Stream
from orbit.api.heads import HEADERS_MAX_BYTES
from orbit.runtime.setting_values import Address

GRACEFUL_SECONDS: Final = 8.0
BACKLOG: Final = 1_024

Listener = trio.SocketListener | trio.SSLListener[trio.SocketStream]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Certificate chain and key, as PEM files."""

    cert: Path
    key: Path


class HttpServer:
    """Serves one application on one address."""

    def __init__(self, app: Application, address: Address, *, tls: Tls | None = None) -> None:
        self.app = Plain(app)
        self.context = WorkerContext(None)
        self.config = _config()
        self.last_moment = math.inf
        self._address = address
        self._tls = tls
        self._live: set[Connection] = set()

    async def serve(
        self, stop: trio.Event, *, task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until `stop` is set, then finish what is in hand for at most 8 s.

        Reports the bound address once connections are accepted. Raises: OSError if it can't be bound.
        """
        listeners = await self._listen()
        async with trio.open_nursery() as connections:
            async with trio.open_nursery() as accepting:
                serve = partial(trio.serve_listeners, self._accept, listeners, handler_nursery=connections)
                accepting.start_soon(serve)
                task_status.started(_bound(listeners, self._address))
                await stop.wait()
                accepting.cancel_scope.cancel()  # closes the listeners: others get the next connections
            await self.context.terminated.set()
            self.last_moment = trio.current_time() + GRACEFUL_SECONDS
            connections.cancel_scope.deadline = self.last_moment
            for connection in self._live:
                connection.retire()

    async def _listen(self) -> list[Listener]:
        host = self._address.host
        listeners = await trio.open_tcp_listeners(self._address.port, host=host, backlog=BACKLOG)
        if self._tls is None:
            return list(listeners)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(self._tls.cert, self._tls.key)
        return [trio.SSLListener(listener, context, https_compatible=True) for listener in listeners]

    async def _accept(self, stream: Stream) -> None:
        connection = Connection(self, stream)
        self._live.add(connection)
        try:
            await connection.run()
        finally:
            self._live.discard(connection)


def _config() -> Config:
    config = Config()
    config.accesslog = None
    config.errorlog = None
    config.h11_max_incomplete_size = HEADERS_MAX_BYTES
    return config


def _bound(listeners: list[Listener], asked: Address) -> Address:
    first = listeners[0]
    inner = first.transport_listener if isinstance(first, trio.SSLListener) else first
    assert isinstance(inner, trio.SocketListener)
    return asked.with_port(inner.socket.getsockname()[1])
