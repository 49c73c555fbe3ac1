"""One accepted connection, on its own guard: whatever its peer does ends nothing but itself.

Every wait has a bound: for the first byte of a request, for the rest of its headers, for the peer to take in an answer.
"""

from __future__ import annotations

import math
from typing import Any, Final, Protocol

import trio
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr

from orbit.api.bridge import AppTasks
from orbit.api.http1 import Http1, Patience
from orbit.runtime.logging import get_logger

HANDSHAKE_SECONDS: Final = 10.0
HEADERS_SECONDS: Final = 10.0
KEEP_ALIVE_SECONDS: Final = 60.0
WRITE_SECONDS: Final = 15.0
LINGER_SECONDS: Final = 2.0
_READ_BYTES: Final = 64 * 1024
_WRITE_BYTES: Final = 64 * 1024
_GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError, OSError)

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]


class Server(Protocol):
    """What a connection needs of its server."""

    app: Any
    config: Any
    context: WorkerContext
    last_moment: float


class Connection:
    """Reads requests, hands them to the application, writes answers."""

    def __init__(self, server: Server, stream: Stream) -> None:
        self._server = server
        self._stream = stream
        self._protocol: Http1
        self._write_lock = trio.Lock()
        self._writing: trio.CancelScope | None = None
        self._reading = trio.CancelScope()
        self._patience_ends = trio.current_time() + HEADERS_SECONDS
        self._is_idle = True
        self._is_closing = False

    async def run(self) -> None:
        """Serve the connection to its end; only cancellation comes out of here."""
        try:
            await self._serve()
        except trio.Cancelled:
            raise
        except _GONE:
            pass  # the peer is gone
        except BaseExceptionGroup as group:
            cancelled, others = group.split(trio.Cancelled)
            if others is not None and others.split(_GONE)[1] is not None:
                get_logger().error("connection_broke", exc_info=others)
            if cancelled is not None:
                raise cancelled from None
        except Exception as error:  # noqa: BLE001 - one connection must never end the others
            get_logger().error("connection_broke", exc_info=error)
        finally:
            with trio.move_on_after(LINGER_SECONDS, shield=True):
                await self._stream.aclose()

    def retire(self) -> None:
        """Take no further request: end an idle connection at once, bound the writing of a busy one."""
        if self._writing is not None:
            self._writing.deadline = min(self._writing.deadline, self._server.last_moment)
        if self._is_idle:
            self._reading.cancel()

    async def _serve(self) -> None:
        if isinstance(self._stream, trio.SSLStream):
            with trio.fail_after(HANDSHAKE_SECONDS) as handshake:
                await self._stream.do_handshake()
            assert not handshake.cancelled_caught
            socket, is_tls = self._stream.transport_stream.socket, True
        else:
            socket, is_tls = self._stream.socket, False
        async with AppTasks() as tasks:
            self._protocol = Http1(
                self._server.app,
                self._server.config,
                self._server.context,
                tasks,
                ConnectionState({}),
                is_tls,
                parse_socket_addr(socket.family, socket.getpeername()),
                parse_socket_addr(socket.family, socket.getsockname()),
                self._handle,
            )
            await self._read()

    async def _read(self) -> None:
        while True:
            with trio.CancelScope(deadline=self._patience_ends) as self._reading:
                data = await self._stream.receive_some(_READ_BYTES)
            if self._reading.cancelled_caught:
                if not await self._lingers():
                    break
                continue
            if self._is_closing:
                if not data:
                    break
                continue  # take in what is still on its way, so that the answer isn't lost with it
            if self._is_idle and self._patience_ends > trio.current_time() + HEADERS_SECONDS:
                self._patience_ends = trio.current_time() + HEADERS_SECONDS
            await self._protocol.handle(RawData(bytes(data)))
            if not data:
                break
        await self._protocol.handle(Closed())

    async def _lingers(self) -> bool:
        """Tell a peer that ran out of time so, and whether to wait for it to take the answer in."""
        was_closing = self._is_closing
        if not was_closing:
            await self._protocol.time_out()
        return self._is_closing and not was_closing

    async def _handle(self, event: Event) -> None:
        """Take what the protocol has to say to the peer or about its own state."""
        if isinstance(event, RawData):
            await self._write(event.data)
        elif isinstance(event, Updated):
            self._note(is_idle=event.idle)
        elif isinstance(event, Patience):
            self._set_patience(event.seconds)
        elif isinstance(event, Closed):
            await self._close()

    def _note(self, *, is_idle: bool) -> None:
        self._is_idle = is_idle
        # While a request is in hand its own bounds hold: the body's, the answer's.
        self._set_patience(KEEP_ALIVE_SECONDS if is_idle else math.inf)

    def _set_patience(self, seconds: float) -> None:
        self._patience_ends = trio.current_time() + seconds
        self._reading.deadline = self._patience_ends

    async def _write(self, data: bytes) -> None:
        async with self._write_lock:
            for start in range(0, len(data), _WRITE_BYTES):
                # Shielded: half an answer must not be followed by something else.
                with trio.CancelScope(shield=True) as self._writing:
                    last = self._server.last_moment
                    self._writing.deadline = min(trio.current_time() + WRITE_SECONDS, last)
                    try:
                        await self._stream.send_all(data[start : start + _WRITE_BYTES])
                    except _GONE:
                        self._give_up()
                        return
                if self._writing.cancelled_caught:
                    self._give_up()
                    return

    def _give_up(self) -> None:
        """End a connection whose peer doesn't take its answer."""
        self._is_closing = True
        self._is_idle = True
        self._reading.cancel()

    async def _close(self) -> None:
        """Say that no more will be sent, and give the peer a moment to take in what was."""
        if self._is_closing:
            return
        self._is_closing = True
        self._is_idle = True
        self._set_patience(LINGER_SECONDS)
        if isinstance(self._stream, trio.SocketStream):
            async with self._write_lock:
                try:
                    await self._stream.send_eof()
                except _GONE:
                    self._reading.cancel()
