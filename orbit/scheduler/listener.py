"""Accepts connections: TLS, path and subprotocol, who asks; then a session. Each connection in a guard of its own."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import trio
from trio_websocket import WebSocketRequest

from orbit.domain.errors import InvalidArgument, NotFound, OrbitError, Unauthenticated, Unavailable
from orbit.domain.ids import id_text, new_id
from orbit.domain.permissions import WORKERS_CONNECT
from orbit.domain.strictjson import encode
from orbit.kernel.caller import Caller, Token
from orbit.kernel.identity import read_caller
from orbit.runtime.database import Database
from orbit.runtime.logging import get_logger
from orbit.scheduler.connection import CLOSE_SECONDS, Connection, read_request
from orbit.scheduler.dispatcher import Dispatcher
from orbit.scheduler.messages import PATH, SUBPROTOCOL
from orbit.scheduler.session import WorkerSession
from orbit.scheduler.wire import Wire
from orbit.store.failures import DriverError

CONNECTIONS_MAX: Final = 4_096


async def open_listeners(
    host: str, port: int, *, certificate: Path | None = None, key: Path | None = None
) -> Sequence[trio.abc.Listener[trio.abc.Stream]]:
    """Bind; with a certificate and its key, for WSS.

    Raises:
        OSError: the address can't be had.
    """
    if certificate is None or key is None:
        return list(await trio.open_tcp_listeners(port, host=host))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return list(await trio.open_ssl_over_tcp_listeners(port, context, host=host, https_compatible=True))


class Listener:
    """Turns connections into sessions of a dispatcher. Nothing that a client does ends more than its connection."""

    def __init__(self, dispatcher: Dispatcher, database: Database) -> None:
        self._dispatcher = dispatcher
        self._database = database
        self.connections: set[Connection] = set()
        self._accepted = 0

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve one connection until its end; the handler of the listening sockets."""
        if self._accepted >= CONNECTIONS_MAX:
            await trio.aclose_forcefully(stream)
            return
        self._accepted += 1
        try:
            await self._guarded(stream)
        except Exception as error:  # noqa: BLE001 - the guard: also trio-websocket's own failures end here
            get_logger().info("connection_failed", error=type(error).__name__)
        finally:
            self._accepted -= 1
            await trio.aclose_forcefully(stream)

    async def _guarded(self, stream: trio.abc.Stream) -> None:
        async with trio.open_nursery() as nursery:
            wire = Wire(stream)
            request = await read_request(nursery, wire)
            if request is not None:
                try:
                    token, caller = await self._admit(request)
                except OrbitError as error:
                    await _reject(request, error)
                except DriverError as error:
                    get_logger().warning("admission_failed", error=error)
                    await _reject(request, Unavailable("the database is unavailable"))
                else:
                    await self._serve(request, wire, token, caller)
            nursery.cancel_scope.cancel()

    async def _serve(self, request: WebSocketRequest, wire: Wire, token: Token, caller: Caller) -> None:
        connection = Connection(await request.accept(subprotocol=SUBPROTOCOL), wire)
        session = WorkerSession(caller=caller, token=token, outbox=connection.outbox)
        self.connections.add(connection)
        try:
            await connection.run(session, self._dispatcher.receive)
        finally:
            self.connections.discard(connection)
            self._dispatcher.leave(session)

    async def _admit(self, request: WebSocketRequest) -> tuple[Token, Caller]:
        """Check path, subprotocol and credential before the upgrade."""
        if request.path.partition("?")[0] != PATH:
            raise NotFound("no such path")
        if SUBPROTOCOL not in request.proposed_subprotocols:
            raise InvalidArgument(f"must offer {SUBPROTOCOL}", field="Sec-WebSocket-Protocol")
        token = _token(request)
        caller = await self._database.read(lambda tx: read_caller(tx, token))
        caller.require(WORKERS_CONNECT)
        return token, caller


def _token(request: WebSocketRequest) -> Token:
    values = [value for name, value in request.headers if name.lower() == b"authorization"]
    if len(values) > 1:
        raise Unauthenticated("more than one Authorization header")
    return Token.of_header(values[0].decode("latin-1") if values else None)


async def _reject(request: WebSocketRequest, error: OrbitError) -> None:
    """Refuse the upgrade with the HTTP envelope of a failure."""
    body = {"request_id": id_text(new_id()), "error": {"code": error.code, "message": error.message}}
    headers = [(b"Content-Type", b"application/json")]
    if error.status == 401:
        headers.append((b"WWW-Authenticate", b"Bearer"))
    if error.retry_after_ms is not None:
        headers.append((b"Retry-After", b"%d" % error.retry_after_seconds))
    with trio.move_on_after(CLOSE_SECONDS):
        await request.reject(error.status, extra_headers=headers, body=encode(body))
