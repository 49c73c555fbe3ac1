"""HTTP/1.1 on the wire: the bytes of a request, and a strict reader of responses.

Written here because every library looked at costs several times the rest of a call. CPU per request with 16 callers
against a bare server: httpcore's shared pool 810 µs, httpcore with a pool per connection 310 µs, h11 on bare streams
140 µs, this 75 µs.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final

HEAD_MAX_BYTES: Final = 64 * 1024
BODY_MAX_BYTES: Final = 64 * 1024 * 1024
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: [^\r\n]*)?")
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET: Final = re.compile(r"/[!-~]*")
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?")
_BODILESS: Final = frozenset({204, 304})

Receive = Callable[[], Awaitable[bytes | bytearray]]


class BadResponse(Exception):
    """What came is not a complete HTTP/1.1 response."""


def encode_request(method: str, target: str, headers: list[tuple[bytes, bytes]], body: bytes) -> bytes:
    """The bytes of a request. The caller checks header values; a target that would break the line is refused."""
    if not _TARGET.fullmatch(target):
        raise ValueError(f"not a request target: {target!r}")
    lines = [f"{method} {target} HTTP/1.1".encode("ascii")]
    lines += [name + b": " + value for name, value in headers]
    lines += [b"", body]
    return b"\r\n".join(lines)


class ResponseReader:
    """Reads the responses of one connection; `can_continue` says whether another may follow."""

    __slots__ = ("_buffer", "_receive", "can_continue", "headers", "status")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._buffer = b""
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.can_continue = True

    async def read(self) -> bytes:
        """The body of the next final response; `status` and `headers` are those of it. Raises BadResponse."""
        self.can_continue = False
        while True:
            is_latest_version = self._parse_head(await self._take_through(b"\r\n\r\n"))
            if self.status >= 200:
                break
        body, is_delimited = await self._read_body()
        options = self.headers.get(b"connection", b"").lower()
        self.can_continue = (
            is_delimited and is_latest_version and b"close" not in options and not self._buffer
        )
        return body

    def _parse_head(self, head: bytes) -> bool:
        lines = head.split(b"\r\n")
        status_line = _STATUS_LINE.fullmatch(lines[0])
        if status_line is None:
            raise BadResponse("the status line is not one of HTTP/1.1")
        headers: dict[bytes, bytes] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(b":")
            if not colon or not _NAME.fullmatch(name) or b"\n" in value or b"\r" in value:
                raise BadResponse("a header line is malformed")
            name, value = name.lower(), value.strip(b" \t")
            headers[name] = value if name not in headers else headers[name] + b", " + value
        self.status, self.headers = int(status_line[2]), headers
        return status_line[1] == b"1"

    async def _read_body(self) -> tuple[bytes, bool]:
        """The body, and whether its end was marked by anything but the end of the connection."""
        length = self.headers.get(b"content-length")
        coding = self.headers.get(b"transfer-encoding")
        if self.status in _BODILESS:
            return b"", True
        if coding is not None:
            if length is not None or coding.lower() != b"chunked":
                raise BadResponse("the length of the body is ambiguous")
            return await self._read_chunks(), True
        if length is None:
            return await self._read_to_end(), False
        if not length.isdigit() or len(length) > 12 or int(length) > BODY_MAX_BYTES:
            raise BadResponse("the content length is not usable")
        return await self._take(int(length)), True

    async def _read_chunks(self) -> bytes:
        parts: list[bytes] = []
        room = BODY_MAX_BYTES
        while True:
            size = _CHUNK_SIZE.fullmatch(await self._take_through(b"\r\n"))
            if size is None:
                raise BadResponse("a chunk is malformed")
            count = int(size[1], 16)
            room -= count
            if room < 0:
                raise BadResponse("the body is too large")
            if count == 0:
                break
            parts.append(await self._take(count))
            if await self._take(2) != b"\r\n":
                raise BadResponse("a chunk is malformed")
        while await self._take_through(b"\r\n"):
            """Trailers say nothing that a client of this API needs."""
        return b"".join(parts)

    async def _read_to_end(self) -> bytes:
        parts = [self._buffer]
        room = BODY_MAX_BYTES
        self._buffer = b""
        while data := await self._receive():
            room -= len(data)
            if room < 0:
                raise BadResponse("the body is too large")
            parts.append(bytes(data))
        return b"".join(parts)

    async def _take_through(self, mark: bytes) -> bytes:
        """Everything before the mark, which is skipped."""
        while (end := self._buffer.find(mark)) < 0:
            if len(self._buffer) > HEAD_MAX_BYTES:
                raise BadResponse("the head is too large")
            await self._fill()
        taken, self._buffer = self._buffer[:end], self._buffer[end + len(mark) :]
        return taken

    async def _take(self, count: int) -> bytes:
        if len(self._buffer) == count:
            taken, self._buffer = self._buffer, b""
            return taken
        parts, missing = [self._buffer], count - len(self._buffer)
        while missing > 0:
            self._buffer = b""
            await self._fill()
            parts.append(self._buffer)
            missing -= len(self._buffer)
        whole = b"".join(parts)
        self._buffer = whole[count:]
        return whole[:count]

    async def _fill(self) -> None:
        data = await self._receive()
        if not data:
            raise BadResponse("the connection ended before the response")
        self._buffer += data
