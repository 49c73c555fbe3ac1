"""Opaque page cursors: versioned, authenticated with the installation's key, bound to their list (02-pulse "Lists").

A cursor is base64url(version, tag, position). The tag covers the context too, so that a cursor of another namespace,
filter or queue scope is refused rather than misread.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

import msgspec

from orbit.domain.errors import InvalidArgument, InvariantViolation
from orbit.domain.limits import CURSOR_MAX_CHARS

Position: TypeAlias = tuple[int | str | bytes | datetime | None, ...]

_VERSION: Final = b"\x01"
_TAG_BYTES: Final = 16
_TIME_EXT: Final = 1
_EPOCH: Final = datetime(1970, 1, 1)
_MICROSECOND: Final = timedelta(microseconds=1)


def context(*parts: bytes | str | None) -> bytes:
    """Join what a list is bound to (namespace, filters, scope) into unambiguous bytes; None differs from ""."""
    joined = bytearray()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        joined += b"-" if data is None else b"+" + len(data).to_bytes(4, "big") + data
    return bytes(joined)


def encode(key: bytes, context: bytes, position: Position) -> str:
    """Return the cursor text that continues after `position` in the list of `context`."""
    body = msgspec.msgpack.encode([_pack(value) for value in position])
    sealed = _VERSION + _tag(key, context, body) + body
    return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()


def decode(key: bytes, context: bytes, text: str) -> Position:
    """Return the position of a cursor made with this key and context; else InvalidArgument(field="cursor")."""
    sealed = _unseal(text)
    body = sealed[1 + _TAG_BYTES :]
    if sealed[:1] != _VERSION:
        raise InvalidArgument("is of another version", field="cursor")
    if not hmac.compare_digest(sealed[1 : 1 + _TAG_BYTES], _tag(key, context, body)):
        raise InvalidArgument("doesn't belong to this list and its filters", field="cursor")
    values: Sequence[Any] = msgspec.msgpack.decode(body, ext_hook=_unpack)
    return tuple(values)


def _unseal(text: str) -> bytes:
    refused = InvalidArgument("is malformed", field="cursor")
    if not text or len(text) > CURSOR_MAX_CHARS or not text.isascii():
        raise refused
    try:
        sealed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise refused from None
    if base64.urlsafe_b64encode(sealed).rstrip(b"=").decode() != text:
        raise refused
    return sealed


def _tag(key: bytes, context: bytes, body: bytes) -> bytes:
    signed = _VERSION + len(context).to_bytes(4, "big") + context + body
    return hmac.digest(key, signed, hashlib.sha256)[:_TAG_BYTES]


def _pack(value: int | str | bytes | datetime | None) -> Any:
    if not isinstance(value, datetime):
        return value
    microseconds = (value - _EPOCH) // _MICROSECOND
    return msgspec.msgpack.Ext(_TIME_EXT, microseconds.to_bytes(8, "big", signed=True))


def _unpack(code: int, data: memoryview) -> datetime:
    if code != _TIME_EXT:
        raise InvariantViolation("an authentic cursor holds an unknown value")
    return _EPOCH + timedelta(microseconds=int.from_bytes(data, "big", signed=True))
