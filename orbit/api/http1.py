"""HTTP/1.1 on one connection: hypercorn's protocol over h11, without what this API doesn't speak.

No WebSocket, no HTTP/2: an upgrade is an ordinary request. Content-Length beside Transfer-Encoding, oversized headers
and malformed requests are refused in the JSON envelope. An answer leaves in one write.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Protocol
from wsgiref.handlers import format_date_time

import h11
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, EndBody, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.events import Request as StreamRequest
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream
from hypercorn.trio.task_group import TaskGroup

from orbit.api.body import BODY_TIMEOUT_SECONDS, GatheredBody
from orbit.api.envelope import Reply, failed, new_request_id
from orbit.api.errors import failure_of, http_fault
from orbit.api.exchange import Direct, Exchange
from orbit.domain.errors import RequestTimeout
from orbit.runtime.logging import get_logger

HEADERS_MAX_BYTES: Final = 16 * 1024
HEADERS_MAX_COUNT: Final = 100
_REASONS: Final = {status.value: status.phrase.encode() for status in HTTPStatus}

Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]


class Application(Protocol):
    """An ASGI application with a direct way to some endpoints, which then run in their connection's own task."""

    def direct(self, method: bytes, target: bytes) -> Direct | None: ...

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...


class Plain(ASGIWrapper):
    """An application as hypercorn's streams call it, without their ways into threads."""

    def __init__(self, app: Application) -> None:
        super().__init__(app)
        self.direct = app.direct

    async def __call__(self, scope: Any, receive: Any, send: Any, *_: Any) -> None:
        await self.app(scope, receive, send)


@dataclass(frozen=True, slots=True)
class Patience(Event):
    """How long the peer may take from now on, in seconds."""

    seconds: float


class AppTasks(TaskGroup):
    """Runs the application for each request; one that ends without reading its body blocks nobody."""

    async def spawn_app(self, app: Any, config: Any, scope: Any, send: Send) -> Any:
        sender, receiver = trio.open_memory_channel[Any](config.max_app_queue_size)

        async def put(event: Any) -> None:
            try:
                await sender.send(event)
            except trio.BrokenResourceError:
                return  # the application is done with this request

        async def run() -> None:
            with receiver, sender:
                await _run_app(app, scope, receiver.receive, send)

        assert self._nursery is not None
        self._nursery.start_soon(run)
        return put


async def _run_app(app: Any, scope: Any, receive: Receive, send: Send) -> None:
    try:
        await app(scope, receive, send)
    except Exception as error:  # noqa: BLE001 - one request's failure must not reach its connection's other tasks
        get_logger().error("request_broke", path=scope["path"], exc_info=error)
    finally:
        with trio.CancelScope(shield=True):
            await send(None)


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
            headers = [*event.headers, (b"date", _date())]
            if self.context.terminated.is_set():
                headers.append((b"connection", b"close"))
            self._head = self._encode(_response(event.status_code, headers))
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
                    _check_request(event)
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
            body.add(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            self._direct = None
            self._is_answering = True
            await self._reply(await direct(exchange))
            await self._maybe_recycle()

    async def time_out(self) -> None:
        """Answer a request whose body didn't come in time, and close."""
        if self._direct is not None:
            exchange, self._direct = self._direct[1], None
            late = RequestTimeout(f"the body didn't arrive within {BODY_TIMEOUT_SECONDS:.0f} s")
            await self._reply(failed(exchange.request_id, failure_of(late)), is_last=True)
            await self.send(Closed())

    async def _reply(self, reply: Reply, *, is_last: bool = False) -> None:
        headers = [*reply.headers, (b"date", _date())]
        if is_last or self.context.terminated.is_set():
            headers.append((b"connection", b"close"))
        self._head = self._encode(_response(reply.status, headers))
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


def _check_request(request: h11.Request) -> None:
    """Refuse what the parser lets pass: two framings in one request, headers beyond their bounds."""
    names = [name for name, _ in request.headers]
    size = sum(len(name) + len(value) for name, value in request.headers)
    if size + len(request.target) > HEADERS_MAX_BYTES or len(names) > HEADERS_MAX_COUNT:
        raise h11.RemoteProtocolError("headers too large", error_status_hint=431)
    if b"transfer-encoding" in names and b"content-length" in names:
        raise h11.RemoteProtocolError("both Content-Length and Transfer-Encoding", error_status_hint=400)
    if request.http_version not in {b"1.1", b"1.0"}:
        raise h11.RemoteProtocolError("unknown version of HTTP", error_status_hint=400)


def _response(status: int, headers: list[tuple[bytes, bytes]]) -> h11.Response:
    return h11.Response(status_code=status, headers=headers, reason=_REASONS.get(status, b""))


class _Clock:
    """The Date header's text, made once a second."""

    second = 0
    text = b""


def _date(clock: type[_Clock] = _Clock) -> bytes:
    now = int(time.time())
    if now != clock.second:
        clock.second, clock.text = now, format_date_time(now).encode()
    return clock.text
