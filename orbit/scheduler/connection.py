"""One WebSocket connection: its upgrade, a reader and a sender of its own, pings, a bounded end.

The only module that knows trio-websocket. Whatever a client does ends its own connection at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, wrap_server_stream

from orbit.domain import limits
from orbit.domain.errors import InvalidArgument
from orbit.scheduler.messages import decode_frame, encode_frame
from orbit.scheduler.outbox import Ending, Outbox
from orbit.scheduler.session import Phase, ProtocolViolation, WorkerSession
from orbit.scheduler.wire import Wire

HANDSHAKE_SECONDS: Final = 10.0
HELLO_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 2.0
FLUSH_SECONDS: Final = 2.0
# A silent peer is asked after 4 s and 8 s and given up after 12 s, within the promised 15 s.
PING_AFTER_SECONDS: Final = 4.0
PING_SECONDS: Final = 3.0
SILENT_SECONDS: Final = 11.0
WATCH_SECONDS: Final = 1.0
# Bodies of unanswered results that one connection may have in memory; more of them wait unread.
UNANSWERED_BYTES: Final = 4 * limits.MIB
REASON_MAX_BYTES: Final = 120
# Small, since all frames in it are handled in one go: thousands of tiny ones must not delay other connections.
RECEIVE_BYTES: Final = 16 * limits.KIB

Receive = Callable[[WorkerSession, Sequence[Any]], None]


async def read_request(nursery: trio.Nursery, wire: Wire) -> WebSocketRequest | None:
    """Read a client's opening handshake; None if it doesn't come in time."""
    with trio.move_on_after(HANDSHAKE_SECONDS):
        request: WebSocketRequest = await wrap_server_stream(
            nursery, wire, max_message_size=limits.FRAME_MAX_BYTES, receive_buffer_size=RECEIVE_BYTES
        )
        return request
    return None


class Connection:
    """Carries frames between one worker and its session until one of them ends it."""

    def __init__(self, socket: WebSocketConnection, wire: Wire) -> None:
        self._socket = socket
        self._wire = wire
        self._wake = trio.Event()
        self._answered = trio.Event()
        self._is_cut = False
        self.outbox = Outbox(self._woken)

    async def run(self, session: WorkerSession, receive: Receive) -> Ending:
        """Serve until the peer goes, breaks the protocol, or the outbox says that it ends; return why."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read, session, receive)
            nursery.start_soon(self._watch, nursery.cancel_scope, session)
            # The sender is the one that ends the others: a frame that it has begun is finished, if the peer takes it.
            await self._send()
            nursery.cancel_scope.cancel()
        ending = self.outbox.ending or Ending(1001, "shutting down")
        await self._close(ending)
        return ending

    def _woken(self) -> None:
        self._wake.set()

    async def _read(self, session: WorkerSession, receive: Receive) -> None:
        try:
            while True:
                frame = await self._socket.get_message()
                self._wire.unread = 0
                receive(session, decode_frame(frame))
                while session.in_flight_bytes > UNANSWERED_BYTES:
                    self._answered = trio.Event()
                    await self._answered.wait()
        except InvalidArgument as error:
            self.outbox.end(1008, error.message)
        except ProtocolViolation as error:
            self.outbox.end(1008, str(error))
        except ConnectionClosed:
            self.outbox.end(1006, "the peer has gone")

    async def _send(self) -> None:
        outbox = self.outbox
        try:
            while True:
                if outbox.ending is not None and not outbox.is_flushing:
                    return
                frame = outbox.take()
                if frame:
                    self._is_cut = True
                    await self._socket.send_message(encode_frame(frame))
                    self._is_cut = False
                    outbox.sent()
                    self._answered.set()
                elif outbox.ending is not None:
                    return
                else:
                    self._wake = trio.Event()
                    await self._wake.wait()
        except ConnectionClosed:
            outbox.end(1006, "the peer has gone")

    async def _watch(self, scope: trio.CancelScope, session: WorkerSession) -> None:
        """End a peer that doesn't say hello, doesn't read, sends without end, or isn't there any more."""
        hello_until = trio.current_time() + HELLO_SECONDS
        flush_until = None
        while True:
            await trio.sleep(WATCH_SECONDS)
            now = trio.current_time()
            silent = now - self._wire.received_at
            if self.outbox.ending is not None:
                flush_until = flush_until or now + FLUSH_SECONDS
                if now >= flush_until:
                    scope.cancel()
            elif session.phase is Phase.NEW and now > hello_until:
                self.outbox.end(1008, "no hello")
            elif self._wire.is_stuck(now, limits.SEND_PROGRESS_MS / 1_000):
                self.outbox.end(1013, "the peer doesn't read")
            elif self._wire.is_flooding:
                self.outbox.end(1008, "too many bytes without a message")
            elif silent > SILENT_SECONDS:
                self.outbox.end(1006, "the peer is silent")
            elif silent > PING_AFTER_SECONDS and not await self._ping():
                self.outbox.end(1006, "the peer has gone")

    async def _ping(self) -> bool:
        """Ask whether the peer is there; whatever it sends counts as an answer. False: the connection is closed."""
        try:
            with trio.move_on_after(PING_SECONDS):
                await self._socket.ping()
        except ConnectionClosed:
            return False
        return True

    async def _close(self, ending: Ending) -> None:
        """Say goodbye within 2 s, whoever waits for whom; then the TCP connection is closed in any case."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_SECONDS):
            if ending.code == 1006 or self._is_cut:
                await trio.aclose_forcefully(self._wire)
            else:
                reason = ending.reason.encode()[:REASON_MAX_BYTES].decode("utf-8", "ignore")
                await self._socket.aclose(ending.code, reason)
