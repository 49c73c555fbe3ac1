"""One worker connection over trio-websocket, the only module that imports it.

Each connection is guarded, because the library's reader raises out of its task (a ping during the closing
handshake), its close waits for the peer for a long time, and a connection that ends during the opening handshake
would leave the caller waiting: whatever happens here becomes a `ConnectionLost` of this connection.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast
from urllib.parse import urlsplit

import trio
from trio_websocket import ConnectionClosed, ConnectionRejected, WebSocketConnection, wrap_client_stream

from orbit_sdk._errors import APIError, ConnectionLost

PATH: Final = "/v1/workers/connect"
SUBPROTOCOL: Final = "orbit.worker.v1"
CONNECT_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 2.0
# A half-open peer is noticed after at most 5 + 8 seconds.
PING_SECONDS: Final = 5.0
PONG_SECONDS: Final = 8.0
RECEIVE_BYTES: Final = 256 * 1024
FRAME_MAX_BYTES: Final = 1024 * 1024
QUEUED_FRAMES: Final = 16
_STATUS_CODES: Final = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    503: "UNAVAILABLE",
}


Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]


class _GuardedReader:
    """Stands in for the nursery that trio-websocket starts its reader in, and keeps the reader's errors."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        # Its end is `Connection.close`: a cancelled caller still needs it for the closing handshake.
        self.scope = trio.CancelScope(shield=True)
        self.failure: Exception | None = None
        self.has_ended = trio.Event()

    def start_soon(self, reader: Callable[[], Awaitable[Any]], *_: object) -> None:
        self._nursery.start_soon(self._run, reader)

    async def _run(self, reader: Callable[[], Awaitable[Any]]) -> None:
        try:
            with self.scope:
                await reader()
        except Exception as exc:  # noqa: BLE001 - becomes the failure of this one connection
            self.failure = exc
        finally:
            self.has_ended.set()


class Connection:
    """An open WebSocket: frames as text in both directions. Every method raises ConnectionLost once it has ended."""

    def __init__(self, socket: WebSocketConnection, stream: Stream, reader: _GuardedReader) -> None:
        self._socket = socket
        self._stream = stream
        self._reader = reader

    async def send(self, frame: str) -> None:
        """Send one text frame; waits while the peer reads slowly."""
        try:
            await self._socket.send_message(frame)
        except ConnectionClosed as exc:
            raise _lost(exc) from exc
        except Exception as exc:  # wsproto raises its own errors for a connection that is closing
            raise ConnectionLost(1006, f"{type(exc).__name__}: {exc}") from exc

    async def receive(self) -> str | bytes:
        """The next frame."""
        try:
            return await self._socket.get_message()
        except ConnectionClosed as exc:
            raise _lost(exc) from exc

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close with a bounded farewell, even while being cancelled."""
        with trio.CancelScope(shield=True):
            with trio.move_on_after(0 if self._reader.has_ended.is_set() else CLOSE_SECONDS):
                # Whatever its state, the connection ends one way or the other.
                with contextlib.suppress(Exception):
                    await self._socket.aclose(code, reason or None)
            self._reader.scope.cancel()
            await trio.aclose_forcefully(self._stream)

    async def keep_alive(self) -> None:
        """Ping until the peer stops answering; then raise ConnectionLost."""
        number = 0
        while True:
            await trio.sleep(PING_SECONDS)
            number += 1
            with trio.move_on_after(PONG_SECONDS) as scope:
                try:
                    await self._socket.ping(number.to_bytes(4, "big"))
                except ConnectionClosed as exc:
                    raise _lost(exc) from exc
                except Exception as exc:
                    raise ConnectionLost(1006, f"{type(exc).__name__}: {exc}") from exc
            if scope.cancelled_caught:
                raise ConnectionLost(1006, f"no pong within {PONG_SECONDS:.0f} s")


async def open_connection(
    nursery: trio.Nursery, url: str, token: str, *, ssl_context: ssl.SSLContext | None = None
) -> Connection:
    """Connect to a dispatcher (`ws`, `wss`, `http` or `https` URL); the reader runs in `nursery` until `close`.

    Raises APIError for a refusal before the upgrade, ConnectionLost where no connection comes about.
    """
    reader = _GuardedReader(nursery)
    stream = await _open_stream(url, ssl_context)
    try:
        return await _shake_hands(stream, reader, url, token)
    except BaseException:
        reader.scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(stream)
        raise


async def _open_stream(url: str, ssl_context: ssl.SSLContext | None) -> Stream:
    parts = urlsplit(url)
    if parts.scheme not in {"ws", "wss", "http", "https"} or not parts.hostname:
        raise ValueError(f"not a WebSocket URL: {url!r}")
    is_tls = parts.scheme in {"wss", "https"}
    port = parts.port or (443 if is_tls else 80)
    try:
        with trio.fail_after(CONNECT_SECONDS):
            if is_tls:
                return await trio.open_ssl_over_tcp_stream(
                    parts.hostname,
                    port,
                    https_compatible=True,
                    ssl_context=ssl_context or ssl.create_default_context(),
                )
            return await trio.open_tcp_stream(parts.hostname, port)
    except (OSError, trio.TooSlowError, trio.BrokenResourceError) as exc:
        raise ConnectionLost(
            1006, f"cannot connect to {parts.netloc}: {str(exc) or type(exc).__name__}"
        ) from exc


async def _shake_hands(stream: Stream, reader: _GuardedReader, url: str, token: str) -> Connection:
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    socket: WebSocketConnection | None = None
    with trio.move_on_after(CONNECT_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when, reader.has_ended, nursery.cancel_scope)
            socket = await wrap_client_stream(
                cast("trio.Nursery", reader),
                stream,
                parts.netloc.rpartition("@")[2],
                path if path.endswith(PATH) else path + PATH,
                subprotocols=[SUBPROTOCOL],
                extra_headers=[(b"Authorization", b"Bearer " + token.encode("ascii"))],
                message_queue_size=QUEUED_FRAMES,
                max_message_size=FRAME_MAX_BYTES,
                receive_buffer_size=RECEIVE_BYTES,
            )
            nursery.cancel_scope.cancel()
    if isinstance(reader.failure, ConnectionRejected):
        raise _rejected(reader.failure)
    if socket is None:
        raise ConnectionLost(1006, f"the opening handshake failed: {reader.failure or 'no answer'}")
    if socket.subprotocol != SUBPROTOCOL:
        raise ConnectionLost(1002, f"the server does not speak {SUBPROTOCOL}")
    return Connection(socket, stream, reader)


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def _rejected(refusal: ConnectionRejected) -> APIError:
    status = refusal.status_code
    body = (refusal.body or b"")[:1024].decode("utf-8", "replace")
    return APIError(_STATUS_CODES.get(status, f"HTTP_{status}"), status, body or "the upgrade was refused")


def _lost(exc: ConnectionClosed) -> ConnectionLost:
    if exc.reason is None:
        return ConnectionLost(1006, "")
    return ConnectionLost(exc.reason.code, exc.reason.reason or "")
