"""The HTTP transport: httpcore's connections on trio, the idle ones kept here."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import urlsplit

import httpcore
import trio

from orbit_sdk._errors import OutcomeUnknown, TransportError
from orbit_sdk._stream import ExchangeStream

CONNECT_TIMEOUT_SECONDS: Final = 5.0
# Servers close idle connections after about five seconds; leaving first avoids writing into a closing one.
IDLE_SECONDS: Final = 4.0
_TARGET: Final = re.compile(r"/[!-~]*")
_FAILURES: Final = (trio.TooSlowError, httpcore.NetworkError, httpcore.ProtocolError)


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
        scheme, host = b"https" if origin.is_tls else b"http", origin.host.encode("ascii")
        self._origin = httpcore.Origin(scheme, host, origin.port)
        self._timeout_seconds = timeout_seconds
        self._ssl_context = (ssl_context or ssl.create_default_context()) if origin.is_tls else None
        self._backend = httpcore.TrioBackend()
        self._idle: list[httpcore.AsyncHTTP11Connection] = []
        self._slots = trio.Semaphore(size)
        self._is_closed = False

    async def send(self, request: Request) -> Response:
        """Exchange one request; the timeout covers the wait for a connection too. See `Transport.send`."""
        message = self._encode(request)
        connection: httpcore.AsyncHTTP11Connection | None = None
        try:
            with trio.fail_after(self._timeout_seconds):
                async with self._slots:
                    connection = await self._take_idle() or await self._connect()
                    try:
                        return await _exchange(connection, message)
                    finally:
                        await self._give_back(connection)
        except _FAILURES as exc:
            text = f"{request.method} {request.target.partition('?')[0]}: {_describe(exc)}"
            if connection is not None and request.is_write:
                raise OutcomeUnknown(text) from exc
            raise TransportError(text) from exc

    async def aclose(self) -> None:
        """Close the idle connections; those in use close when their exchange ends."""
        self._is_closed = True
        while self._idle:
            await self._idle.pop().aclose()

    def _encode(self, request: Request) -> httpcore.Request:
        if not _TARGET.fullmatch(request.target):
            raise ValueError(f"not a request target: {request.target!r}")
        origin = self._origin
        url = httpcore.URL(scheme=origin.scheme, host=origin.host, port=origin.port, target=request.target)
        return httpcore.Request(request.method, url, headers=request.headers, content=request.body)

    async def _take_idle(self) -> httpcore.AsyncHTTP11Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.has_expired():
                return connection
            await connection.aclose()
        return None

    async def _give_back(self, connection: httpcore.AsyncHTTP11Connection) -> None:
        """Keep it if its exchange ended cleanly and the server did not announce the end."""
        if connection.is_available() and not self._is_closed:
            self._idle.append(connection)
        else:
            await connection.aclose()

    async def _connect(self) -> httpcore.AsyncHTTP11Connection:
        if self._is_closed:
            raise TransportError("the client is closed")
        with trio.fail_after(CONNECT_TIMEOUT_SECONDS):
            stream = await self._open_stream()
        return httpcore.AsyncHTTP11Connection(
            self._origin, ExchangeStream(stream), keepalive_expiry=IDLE_SECONDS
        )

    async def _open_stream(self) -> httpcore.AsyncNetworkStream:
        host = self._origin.host.decode("ascii")
        stream = await self._backend.connect_tcp(host, self._origin.port)
        if self._ssl_context is None:
            return stream
        try:
            return await stream.start_tls(self._ssl_context, host)
        except BaseException:
            await stream.aclose()
            raise


async def _exchange(connection: httpcore.AsyncHTTP11Connection, message: httpcore.Request) -> Response:
    """Send one request and read its whole response."""
    response = await connection.handle_async_request(message)
    body = await response.aread()
    await response.aclose()
    headers: dict[bytes, bytes] = {}
    for name, value in response.headers:
        key = name.lower()
        headers[key] = headers[key] + b", " + value if key in headers else value
    return Response(status=response.status, headers=headers, body=body)


def _describe(failure: Exception) -> str:
    """Name a failure in the words of the nearest cause that has any."""
    if isinstance(failure, trio.TooSlowError):
        return "timed out"
    cause: BaseException = failure
    while not str(cause) and cause.__cause__ is not None:
        cause = cause.__cause__
    return f"{type(failure).__name__}: {cause}"
