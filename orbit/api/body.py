"""Request bodies: bounded in size and time, and read to their end before the answer goes out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Protocol

import trio

from orbit.domain.errors import InvalidArgument, OrbitError, PayloadTooLarge, RequestTimeout
from orbit.domain.limits import BODY_MAX_BYTES

BODY_TIMEOUT_SECONDS: Final = 20.0
# A refused body is still taken in for a while: closing on unread bytes would lose the answer on its way.
DRAIN_SECONDS: Final = 3.0

Receive = Callable[[], Awaitable[Any]]


class Body(Protocol):
    """The body of one request as the endpoints take it."""

    async def read(self) -> bytes:
        """Return the whole body, at most 512 KiB, within 20 s.

        Raises: PayloadTooLarge, RequestTimeout, InvalidArgument (not sent as JSON, or cut off).
        """
        ...

    async def drain(self) -> None:
        """Take in what is left, for a short while, so that the peer can read its answer."""
        ...


class GatheredBody:
    """A body that was taken in before its endpoint runs; what goes beyond the bound isn't kept."""

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._headers = headers
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def is_too_large(self) -> bool:
        return self._size > BODY_MAX_BYTES

    def add(self, data: bytes) -> None:
        self._size += len(data)
        if self.is_too_large:
            self._parts.clear()
        else:
            self._parts.append(data)

    def late(self) -> OrbitError:
        """Return what to tell a peer that didn't come to the body's end in time."""
        if self.is_too_large:
            return _too_large()
        return RequestTimeout(f"the body didn't arrive within {BODY_TIMEOUT_SECONDS:.0f} s")

    async def read(self) -> bytes:
        _check_headers(self._headers)
        if self.is_too_large:
            raise _too_large()
        return b"".join(self._parts)

    async def drain(self) -> None:
        return


class StreamedBody:
    """A body that is taken from the server message by message, while its endpoint runs."""

    def __init__(self, receive: Receive, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._receive = receive
        self._headers = headers
        self._is_complete = False

    async def read(self) -> bytes:
        declared = _check_headers(self._headers)
        if declared > BODY_MAX_BYTES:
            raise _too_large()
        parts: list[bytes] = []
        size = 0
        with trio.move_on_after(BODY_TIMEOUT_SECONDS) as patience:
            while not self._is_complete:
                part = await self._next()
                size += len(part)
                if size > BODY_MAX_BYTES:
                    raise _too_large()
                parts.append(part)
        if patience.cancelled_caught:
            raise RequestTimeout(f"the body didn't arrive within {BODY_TIMEOUT_SECONDS:.0f} s")
        return b"".join(parts)

    async def drain(self) -> None:
        if self._is_complete:
            return
        with trio.move_on_after(DRAIN_SECONDS), suppress(InvalidArgument):
            while not self._is_complete:
                await self._next()
        self._is_complete = True  # or given up: the answer doesn't wait a second time

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] != "http.request":
            self._is_complete = True
            raise InvalidArgument("was cut off", field="body")
        self._is_complete = not message.get("more_body", False)
        body: bytes = message.get("body", b"")
        return body


def _check_headers(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Refuse what isn't plain JSON; return the declared length, 0 where none is declared."""
    declared = 0
    for name, value in headers:
        if name == b"content-length":
            declared = int(value)
        elif name == b"content-encoding" and value.lower() != b"identity":
            raise InvalidArgument("is not supported", field="Content-Encoding")
        elif name == b"content-type" and value.partition(b";")[0].strip().lower() != b"application/json":
            raise InvalidArgument("must be application/json", field="Content-Type")
    return declared


def _too_large() -> PayloadTooLarge:
    return PayloadTooLarge(f"the body must have at most {BODY_MAX_BYTES} bytes")
