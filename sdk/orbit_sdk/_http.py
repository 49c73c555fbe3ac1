"""The HTTP transport: a pool of keep-alive connections on trio."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol
from urllib.parse import urlsplit

import trio

from orbit_sdk._errors import OutcomeUnknown, TransportError
from orbit_sdk._http1 import BadResponse, ResponseReader, encode_request

RECEIVE_BYTES: Final = 65_536
CONNECT_TIMEOUT_SECONDS: Final = 5.0
# Servers close idle connections after about five seconds; leaving first avoids writing into a closing one.
IDLE_SECONDS: Final = 4.0
_FAILURES: Final = (
    OSError,
    trio.TooSlowError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    BadResponse,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request: `target` is path and query; a write's loss after sending is `OutcomeUnknown`."""

    method: str
    target: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    is_write: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One complete response; header names are lower-case."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


class Transport(Protocol):
    """The seam between the client and the network."""

    async def send(self, request: Request) -> Response:
        """Exchange one request. Raises TransportError when surely unsent, OutcomeUnknown for a write in doubt."""

    async def aclose(self) -> None:
        """Close all connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a base URL points to."""

    host: str
    port: int
    is_tls: bool
    prefix: str

    @classmethod
    def parse(cls, url: str) -> Origin:
        """Read an http or https URL; a path becomes a prefix of every target."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"not an http URL: {url!r}")
        is_tls = parts.scheme == "https"
        port = parts.port or (443 if is_tls else 80)
        return cls(host=parts.hostname, port=port, is_tls=is_tls, prefix=parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        """The Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"


class _Connection:
    """One keep-alive connection."""

    __slots__ = ("_reader", "_socket", "_stream", "idle_since")

    def __init__(self, stream: trio.abc.Stream, socket: trio.socket.SocketType) -> None:
        self._stream = stream
        self._socket = socket
        self._reader = ResponseReader(partial(stream.receive_some, RECEIVE_BYTES))
        self.idle_since = 0.0

    async def exchange(self, head_and_body: bytes) -> Response:
        """Send one request and read its whole response."""
        reader = self._reader
        reader.can_continue = False
        await self._stream.send_all(head_and_body)
        body = await reader.read()
        return Response(status=reader.status, headers=reader.headers, body=body)

    @property
    def is_reusable(self) -> bool:
        """Whether the last exchange ended cleanly and the server did not announce the end."""
        return self._reader.can_continue

    def is_stale(self, now: float) -> bool:
        """Whether it idled too long, or the server has closed it or spoken out of turn."""
        return now - self.idle_since > IDLE_SECONDS or self._socket.is_readable()

    def close(self) -> None:
        """Close at once, without farewell."""
        self._socket.close()


class PooledTransport:
    """Keep-alive connections to one origin, the most recently used first; callers beyond `size` wait their turn."""

    def __init__(
        self,
        origin: Origin,
        *,
        size: int = 64,
        timeout_seconds: float = 30.0,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._origin = origin
        self._timeout_seconds = timeout_seconds
        self._ssl_context = ssl_context
        self._idle: list[_Connection] = []
        self._slots = trio.Semaphore(size)
        self._is_closed = False

    async def send(self, request: Request) -> Response:
        """Exchange one request; the timeout covers the wait for a connection too. See `Transport.send`."""
        data = encode_request(request.method, request.target, request.headers, request.body)
        connection: _Connection | None = None
        try:
            with trio.fail_after(self._timeout_seconds):
                await self._take_slot()
                try:
                    connection = self._take_idle() or await self._connect()
                    return await connection.exchange(data)
                finally:
                    self._give_back(connection)
                    self._slots.release()
        except _FAILURES as exc:
            cause = "timed out" if isinstance(exc, trio.TooSlowError) else f"{type(exc).__name__}: {exc}"
            text = f"{request.method} {request.target.partition('?')[0]}: {cause}"
            if connection is not None and request.is_write:
                raise OutcomeUnknown(text) from exc
            raise TransportError(text) from exc

    async def aclose(self) -> None:
        """Close the idle connections; those in use close when their exchange ends."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()
        await trio.lowlevel.checkpoint()

    async def _take_slot(self) -> None:
        try:
            self._slots.acquire_nowait()
        except trio.WouldBlock:
            await self._slots.acquire()

    def _take_idle(self) -> _Connection | None:
        now = trio.current_time()
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_stale(now):
                return connection
            connection.close()
        return None

    def _give_back(self, connection: _Connection | None) -> None:
        if connection is None:
            return
        if not self._is_closed and connection.is_reusable:
            connection.idle_since = trio.current_time()
            self._idle.append(connection)
        else:
            connection.close()

    async def _connect(self) -> _Connection:
        if self._is_closed:
            raise TransportError("the client is closed")
        origin = self._origin
        with trio.fail_after(CONNECT_TIMEOUT_SECONDS):
            stream = await trio.open_tcp_stream(origin.host, origin.port)
            if not origin.is_tls:
                return _Connection(stream, stream.socket)
            context = self._ssl_context or ssl.create_default_context()
            secured = trio.SSLStream(stream, context, server_hostname=origin.host, https_compatible=True)
            try:
                await secured.do_handshake()
            except BaseException:
                stream.socket.close()
                raise
            return _Connection(secured, stream.socket)
