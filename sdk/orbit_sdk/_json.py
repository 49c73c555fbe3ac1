"""JSON with exact numbers, and the texts of times."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import msgspec
from msgspec import Raw

_DECODER: Final = msgspec.json.Decoder(Any, float_hook=Decimal)
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")


def decode_exact(document: Raw | bytes | str) -> Any:
    """Decode JSON without losing a digit: integers become `int` (of up to 4,300 digits, Python's own limit), other
    numbers `Decimal`. Raises msgspec.DecodeError for what is not JSON.
    """
    return _DECODER.decode(document)


def encode(value: Any) -> bytes:
    """Encode to JSON bytes; `Raw` passes unchanged, `Decimal` becomes a number with all of its digits."""
    if type(value) is Raw:
        return bytes(value)
    return _ENCODER.encode(value)


def time_text(value: datetime | str) -> str:
    """The wire form of an aware time: RFC 3339, UTC, six digits. Text passes unchanged."""
    if isinstance(value, str):
        return value
    if value.tzinfo is None:
        raise ValueError("a time needs its time zone")
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
