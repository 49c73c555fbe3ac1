"""Heads of requests and responses: bounds that the parser doesn't know, and what every response carries."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Final
from wsgiref.handlers import format_date_time

import h11

HEADERS_MAX_BYTES: Final = 16 * 1024
HEADERS_MAX_COUNT: Final = 100
_REASONS: Final = {status.value: status.phrase.encode() for status in HTTPStatus}


def check_request(request: h11.Request) -> None:
    """Refuse what the parser lets pass: two framings in one request, headers beyond their bounds.

    Raises: h11.RemoteProtocolError with the status to answer.
    """
    names = [name for name, _ in request.headers]
    size = sum(len(name) + len(value) for name, value in request.headers)
    if size + len(request.target) > HEADERS_MAX_BYTES or len(names) > HEADERS_MAX_COUNT:
        raise h11.RemoteProtocolError("headers too large", error_status_hint=431)
    if b"transfer-encoding" in names and b"content-length" in names:
        raise h11.RemoteProtocolError("both Content-Length and Transfer-Encoding", error_status_hint=400)
    if request.http_version not in {b"1.1", b"1.0"}:
        raise h11.RemoteProtocolError("unknown version of HTTP", error_status_hint=400)


def response(status: int, headers: list[tuple[bytes, bytes]]) -> h11.Response:
    """Return a response's head with its reason phrase."""
    return h11.Response(status_code=status, headers=headers, reason=_REASONS.get(status, b""))


class _Clock:
    """The Date header's text, made once a second."""

    second = 0
    text = b""


def date(clock: type[_Clock] = _Clock) -> bytes:
    """Return the present value of the Date header."""
    now = int(time.time())
    if now != clock.second:
        clock.second, clock.text = now, format_date_time(now).encode()
    return clock.text
