"""HTTP/1.1 on one connection: hypercorn's protocol over h11, without what this API doesn't speak.

No WebSocket, no HTTP/2: an upgrade is an ordinary request. Content-Length beside Transfer-Encoding, oversized headers
and malformed requests are refused in the JSON envelope. An answer leaves in one write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import h11
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, EndBody, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.events import Request as StreamRequest
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream

from orbit.api.body import BODY_TIMEOUT_SECONDS, DRAIN_SECONDS, GatheredBody
from orbit.api.bridge import Plain
from orbit.api.envelope import Reply, failed, new_request_id
from orbit.api.errors import failure_of, http_fault
from orbit.api.exchange import Direct, Exchange
from orbit.api.heads import check_request, date, response
from orbit.runtime.logging import get_logger


@dataclass(frozen=True, slots=True)
class Patience(Event):
    """How long the peer may take from now on, in seconds."""

    seconds: float


class Http1(H11Protocol):
    """The requests of one connection, one at a time."""

    connection: h11.Connection
    stream: HTTPStream | None

    def __init__(self, application: Plain, *arguments: Any) -> None:
        app: Any = application
        super().__init__(app, *arguments)
        self._way = application.direct
        self._head = b""
        self._is_closed = False
        self._is_answering = False
        self._direct: tuple[Direct, Exchange, GatheredBody] | None = None

    async def stream_send(self, event: StreamEvent) -> None:
        """Turn the application's answer into bytes; head and body leave together."""
        if isinstance(event, Response):
            headers = [*event.headers, (b"date", date())]
            if self.context.terminated.is_set():
                headers.append((b"connection", b"close"))
            self._head = self._encode(response(event.status_code, headers))
        elif isinstance(event, Body):
            await self._flush(self._encode(h11.Data(data=event.data)))
        elif isinstance(event, EndBody):
            await self._flush(self._encode(h11.EndOfMessage()))
        elif isinstance(event, StreamClosed):
            await self._maybe_recycle()

    def _encode(self, event: Any) -> bytes:
        try:
            return self.connection.send(event) or b""
        except h11.LocalProtocolError:
            # After a peer's fault there is no way to answer; otherwise the fault is ours.
            if self.connection.their_state is not h11.ERROR:
                raise
            return b""

    async def _flush(self, data: bytes) -> None:
        head, self._head = self._head, b""
        if head or data:
            await self.send(RawData(data=head + data))

    async def _handle_events(self) -> None:
        while not self._is_closed:
            if self.connection.they_are_waiting_for_100_continue:
                await self._flush(self._encode(h11.InformationalResponse(status_code=100, headers=[])))
            try:
                event = self.connection.next_event()
                if isinstance(event, h11.Request):
                    check_request(event)
            except h11.RemoteProtocolError as error:
                if not self._is_answering:
                    await self._refuse(error)
                return  # a complete request gets its answer whatever follows it; then the connection closes
            if not await self._handle_event(event):
                return

    async def _handle_event(self, event: Any) -> bool:
        """Handle one event of the parser; tell whether more may follow at once."""
        if isinstance(event, h11.Request):
            await self.send(Updated(idle=False))
            await self._begin(event)
        elif event is h11.PAUSED:
            await self.can_read.clear()
            await self.can_read.wait()
        elif isinstance(event, h11.ConnectionClosed) or event is h11.NEED_DATA:
            return False
        elif self._direct is not None:
            await self._go_on_directly(self._direct, event)
        elif self.stream is None:
            return False
        elif isinstance(event, h11.Data):
            await self.stream.handle(Body(stream_id=STREAM_ID, data=event.data))
        elif isinstance(event, h11.EndOfMessage):
            self._is_answering = True
            await self.stream.handle(EndBody(stream_id=STREAM_ID))
        return True

    async def _begin(self, request: h11.Request) -> None:
        direct = self._way(request.method, request.target)
        if direct is None:
            await self._create_stream(request)
            return
        headers = list(request.headers)
        body = GatheredBody(headers)
        exchange = Exchange(request.method.decode(), request.target.decode(), b"", headers, body)
        self._direct = direct, exchange, body
        await self.send(Patience(BODY_TIMEOUT_SECONDS))

    async def _go_on_directly(self, call: tuple[Direct, Exchange, GatheredBody], event: Any) -> None:
        direct, exchange, body = call
        if isinstance(event, h11.Data):
            was_too_large = body.is_too_large
            body.add(bytes(event.data))
            if body.is_too_large and not was_too_large:
                await self.send(Patience(DRAIN_SECONDS))
        elif isinstance(event, h11.EndOfMessage):
            self._direct = None
            self._is_answering = True
            await self._reply(await direct(exchange))
            await self._maybe_recycle()

    async def time_out(self) -> None:
        """Answer a request whose body didn't come in time, and close."""
        if self._direct is not None:
            (_, exchange, body), self._direct = self._direct, None
            failure = failure_of(body.late())
            get_logger().info(
                "bad_http", request_id=exchange.request_id, status=failure.status, path=exchange.path
            )
            await self._reply(failed(exchange.request_id, failure), is_last=True)
            await self.send(Closed())

    async def _reply(self, reply: Reply, *, is_last: bool = False) -> None:
        headers = [*reply.headers, (b"date", date())]
        if is_last or self.context.terminated.is_set():
            headers.append((b"connection", b"close"))
        self._head = self._encode(response(reply.status, headers))
        await self._flush(self._encode(h11.Data(data=reply.body)) + self._encode(h11.EndOfMessage()))

    async def _create_stream(self, request: h11.Request) -> None:
        self.stream = HTTPStream(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )
        await self.stream.handle(
            StreamRequest(
                stream_id=STREAM_ID,
                headers=list(request.headers),
                http_version=request.http_version.decode(),
                method=request.method.decode("ascii").upper(),
                raw_path=request.target,
                state=self.connection_state,
            )
        )

    async def _close_stream(self) -> None:
        stream = self.stream
        if stream is not None and stream.state is ASGIHTTPState.CLOSED:
            # Answered: the application needs no word about the end, and may not be there to take it.
            stream.closed = True
            self.stream = None
        else:
            await super()._close_stream()

    async def _maybe_recycle(self) -> None:
        self._is_answering = False
        await super()._maybe_recycle()
        if self.connection.our_state is not h11.IDLE:
            self._is_closed = True
            await self.can_read.set()

    async def _refuse(self, error: h11.RemoteProtocolError) -> None:
        """Answer malformed HTTP in the envelope if no answer has begun, then close."""
        self._is_closed = True
        if self.connection.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            request_id = new_request_id()
            failure = http_fault(error.error_status_hint)
            get_logger().info("bad_http", request_id=request_id, status=failure.status, problem=str(error))
            await self._reply(failed(request_id, failure), is_last=True)
        await self.send(Closed())
