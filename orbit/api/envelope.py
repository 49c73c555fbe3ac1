"""The JSON envelope of every answer: request id with data, or request id with error."""

from __future__ import annotations

import random
from dataclasses import dataclass

import msgspec

from orbit.api.errors import Failure, Header
from orbit.domain.strictjson import encode

_JSON: Header = (b"content-type", b"application/json")


@dataclass(frozen=True, slots=True)
class Reply:
    """A response's parts, ready to be sent."""

    status: int
    body: bytes
    headers: tuple[Header, ...]


class _Error(msgspec.Struct, frozen=True):
    code: str
    message: str
    details: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


def new_request_id() -> str:
    """Return 32 lower-case hex digits, random: request ids are never stored."""
    return f"{random.getrandbits(128):032x}"


def success(request_id: str, status: int, data: object) -> Reply:
    """Wrap data: a Struct, mapping or scalar."""
    body = b'{"request_id":"%b","data":%b}' % (request_id.encode(), encode(data))
    return plain(request_id, status, body)


def failed(request_id: str, failure: Failure) -> Reply:
    error = _Error(failure.code, failure.message, failure.details or msgspec.UNSET)
    body = b'{"request_id":"%b","error":%b}' % (request_id.encode(), encode(error))
    return plain(request_id, failure.status, body, failure.headers)


def plain(request_id: str, status: int, body: bytes, extra: tuple[Header, ...] = ()) -> Reply:
    """Return JSON without an envelope (health, the API's description)."""
    headers = (_JSON, (b"content-length", b"%d" % len(body)), (b"x-request-id", request_id.encode()), *extra)
    return Reply(status, body, headers)
