"""A WebSocket client made of bytes, for what a well-behaved library never does."""

from __future__ import annotations

import base64
import os
import struct

import trio

from tests.support.frames import PATH, SUBPROTOCOL

TEXT, CLOSE, PING, PONG = 1, 8, 9, 10


class RawSocket:
    """One upgraded connection; reads only when told to."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._buffer = b""

    @classmethod
    async def connect(cls, port: int, token: str, *, receive_buffer: int | None = None) -> RawSocket:
        """Open and upgrade; a small `receive_buffer` makes a peer that doesn't read felt soon."""
        sock = trio.socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, receive_buffer)
        await sock.connect(("127.0.0.1", port))
        raw = cls(trio.SocketStream(sock))
        key = base64.b64encode(os.urandom(16)).decode()
        await raw.stream.send_all(
            (
                f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: {SUBPROTOCOL}\r\n"
                f"Authorization: Bearer {token}\r\n\r\n"
            ).encode()
        )
        while b"\r\n\r\n" not in raw._buffer:
            raw._buffer += await raw.stream.receive_some()
        head, _, raw._buffer = raw._buffer.partition(b"\r\n\r\n")
        assert b" 101 " in head.split(b"\r\n")[0], head
        return raw

    async def send(self, opcode: int, payload: bytes, *, final: bool = True) -> None:
        """Send one masked frame."""
        await self.stream.send_all(frame(opcode, payload, final=final))

    async def receive(self) -> tuple[int, bytes] | None:
        """Return the next frame's opcode and payload, None at the end of the stream."""
        while True:
            parsed = _parse(self._buffer)
            if parsed is not None:
                opcode, payload, self._buffer = parsed
                return opcode, payload
            try:
                data = await self.stream.receive_some()
            except trio.BrokenResourceError:
                return None
            if not data:
                return None
            self._buffer += data

    async def until_closed(self) -> int | None:
        """Read to the end; return the close code if one came."""
        code = None
        while (received := await self.receive()) is not None:
            if received[0] == CLOSE:
                code = struct.unpack(">H", received[1][:2])[0]
        return code


def frame(opcode: int, payload: bytes, *, final: bool = True) -> bytes:
    """Return a client's frame, masked with zeros."""
    first = opcode | (0x80 if final else 0)
    size = len(payload)
    if size < 126:
        head = struct.pack(">BB", first, 0x80 | size)
    elif size < 65_536:
        head = struct.pack(">BBH", first, 0x80 | 126, size)
    else:
        head = struct.pack(">BBQ", first, 0x80 | 127, size)
    return head + bytes(4) + payload


def _parse(data: bytes) -> tuple[int, bytes, bytes] | None:
    if len(data) < 2:
        return None
    size, start = data[1] & 0x7F, 2
    if size == 126:
        size, start = (struct.unpack_from(">H", data, 2)[0] if len(data) >= 4 else 1 << 62), 4
    elif size == 127:
        size, start = (struct.unpack_from(">Q", data, 2)[0] if len(data) >= 10 else 1 << 62), 10
    if len(data) < start + size:
        return None
    return data[0] & 0x0F, data[start : start + size], data[start + size :]
