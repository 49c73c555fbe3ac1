"""The error tree of the SDK."""

from __future__ import annotations

from typing import Any

RETRY_AFTER_MAX_SECONDS = 3600


class OrbitError(Exception):
    """The root of every error that this package raises on its own account."""


class APIError(OrbitError):
    """The server refused a command: docs/http.md lists the codes.

    `retry_after` is in whole seconds, 0 where the server gave none (or an unusable or over-long one);
    `details` holds what the error says about its field, None where it says nothing.
    """

    def __init__(
        self,
        code: str,
        status: int,
        message: str,
        *,
        request_id: str = "",
        retry_after: int = 0,
        details: Any = None,
    ) -> None:
        super().__init__(code, status, message)
        self.code = code
        self.status = status
        self.message = message
        self.request_id = request_id
        self.retry_after = retry_after
        self.details = details

    def __str__(self) -> str:
        suffix = f" (request {self.request_id})" if self.request_id else ""
        return f"{self.code} {self.status}: {self.message}{suffix}"


class TransportError(OrbitError):
    """The network failed. Nothing was accepted, unless it is an `OutcomeUnknown`."""


class OutcomeUnknown(TransportError):
    """A write may or may not have been accepted: only the same command under the same key can tell."""


class ProtocolError(OrbitError):
    """The dispatcher broke the worker protocol; the connection was closed."""


class ConnectionLost(TransportError):
    """A worker connection ended. `code` is the close code of the WebSocket, 1006 where there was none."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        return f"connection closed with {self.code}: {self.reason or 'no reason given'}"


class SessionRefused(OrbitError):
    """The dispatcher refused the worker itself (its credential, queues or registration); repeating cannot help."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def parse_retry_after(text: str | None) -> int:
    """Seconds of a Retry-After header: absent, invalid or more than an hour counts as 0."""
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 4:
        return 0
    seconds = int(text)
    return seconds if seconds <= RETRY_AFTER_MAX_SECONDS else 0
