"""One line for each request: method, path, status, time, request id; never a query, a header or a body.

Lines are made cheaply and written in batches, because at thousands of requests a second the general logger would
cost more than the requests.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Final, TextIO

import msgspec
import trio

from orbit.domain.wire import format_time

FLUSH_SECONDS: Final = 0.2
_PATH_MAX_CHARS: Final = 200


class _Line(msgspec.Struct, frozen=True):
    at: str
    level: str
    event: str
    process: str
    request_id: str
    method: str
    path: str
    status: int
    duration_ms: float
    bytes: int


class AccessLog:
    """Gathers lines; `run` writes them. `log_format` is console or json."""

    def __init__(self, *, log_format: str, stream: TextIO | None = None) -> None:
        self._is_json = log_format == "json"
        self._stream = sys.stderr if stream is None else stream
        self._lines: list[str] = []

    def add(self, *, request_id: str, method: str, path: str, status: int, seconds: float, size: int) -> None:
        """Note one answered request; `size` is the answer's body in bytes."""
        at = format_time(datetime.now(UTC).replace(tzinfo=None))
        path = path if len(path) <= _PATH_MAX_CHARS else path[:_PATH_MAX_CHARS] + "…"
        if not path.isprintable():
            path = ascii(path)[1:-1]
        milliseconds = round(seconds * 1_000, 2)
        if self._is_json:
            line = _Line(at, "info", "request", "api", request_id, method, path, status, milliseconds, size)
            self._lines.append(msgspec.json.encode(line).decode() + "\n")
        else:
            self._lines.append(
                f"{at} [info] {method} {path} {status} {milliseconds} ms {size} B request_id={request_id}\n"
            )

    def flush(self) -> None:
        """Write what has gathered."""
        if self._lines:
            lines, self._lines = self._lines, []
            self._stream.write("".join(lines))
            self._stream.flush()

    async def run(self) -> None:
        """Write until cancelled, then the rest."""
        try:
            while True:
                await trio.sleep(FLUSH_SECONDS)
                self.flush()
        finally:
            self.flush()
