"""The byte stream under a WebSocket, watched: when the peer last spoke, and whether it takes what is sent."""

from __future__ import annotations

from typing import Final

import trio

from orbit.domain.limits import KIB, MIB

CHUNK_BYTES: Final = 64 * KIB
# Room for a message of 1 MiB in fragments of a few bytes, each with its header.
UNREAD_MAX_BYTES: Final = 4 * MIB


class Wire(trio.abc.Stream):
    """Passes bytes through in bounded pieces and keeps the times of progress in both directions."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        now = trio.current_time()
        self.received_at = now
        self.unread = 0
        self._moved_at: float | None = None

    @property
    def is_flooding(self) -> bool:
        """Tell whether far more bytes came than a message can have, without one being complete."""
        return self.unread > UNREAD_MAX_BYTES

    def is_stuck(self, now: float, seconds: float) -> bool:
        """Tell whether bytes have waited for the peer so long without any being taken."""
        return self._moved_at is not None and now - self._moved_at > seconds

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._moved_at = trio.current_time()
        try:
            if len(data) <= CHUNK_BYTES:
                await self._stream.send_all(data)
                return
            view = memoryview(data)
            for start in range(0, len(view), CHUNK_BYTES):
                await self._stream.send_all(view[start : start + CHUNK_BYTES])
                self._moved_at = trio.current_time()
        finally:
            self._moved_at = None

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data = await self._stream.receive_some(max_bytes)
        self.received_at = trio.current_time()
        self.unread += len(data)
        return data

    async def aclose(self) -> None:
        await self._stream.aclose()
