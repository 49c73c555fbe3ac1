"""What httpcore reads from and writes to: a request leaves in one piece, a response has an upper bound."""

from __future__ import annotations

import contextlib
from typing import Any, Final

import httpcore

RESPONSE_MAX_BYTES: Final = 64 * 1024 * 1024


class ExchangeStream(httpcore.AsyncNetworkStream):
    """Collects what is written until the answer is asked for: one system call and one packet instead of two."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._unsent: list[bytes] = []
        self._room = 0

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109 - httpcore's signature
        """Keep it for the next read."""
        self._unsent.append(buffer)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - httpcore's signature
        """Send what was written, then receive. Raises httpcore.ReadError where a response grows too large."""
        if self._unsent:
            request = b"".join(self._unsent)
            self._unsent.clear()
            self._room = RESPONSE_MAX_BYTES
            # A server may refuse a request before all of it has come, and close: its answer is worth reading.
            with contextlib.suppress(httpcore.WriteError):
                await self._stream.write(request, timeout)
        data = await self._stream.read(max_bytes, timeout)
        self._room -= len(data)
        if self._room < 0:
            raise httpcore.ReadError("the response is too large")
        return data

    async def aclose(self) -> None:
        """Close at once."""
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        """What the stream below says of itself."""
        return self._stream.get_extra_info(info)
