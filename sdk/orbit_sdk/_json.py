"""JSON with exact numbers, and the texts of times."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import msgspec
from msgspec import Raw

DEPTH_MAX: Final = 64

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


def check_document(document: bytes) -> None:
    """Refuse what the server takes for a breach of protocol, whatever else its message carries.

    Raises: ValueError for bytes that aren't strict JSON: a repeated name, NaN, half of a surrogate pair, more than
    64 levels. Raw, Decimal and mappings whose keys become the same text can hold such.
    """
    value = _SCAN(document.decode())
    if b"\\u" in document:
        json.dumps(value, ensure_ascii=False).encode()
    if document.count(b"[") + document.count(b"{") > DEPTH_MAX and _depth_of(value) > DEPTH_MAX:
        raise ValueError(f"nested deeper than {DEPTH_MAX} levels")


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is repeated in an object")
    return found


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")


# Numbers stay text: Python's own limit on digits is none of JSON.
_SCAN: Final = json.JSONDecoder(
    object_pairs_hook=_refuse_repeated, parse_int=str, parse_float=str, parse_constant=_refuse_constant
).decode


def _depth_of(value: Any) -> int:
    depth, layer = 0, [value]
    while layer := [inner for inner in layer if isinstance(inner, (dict, list))]:
        depth += 1
        layer = [each for inner in layer for each in (inner.values() if isinstance(inner, dict) else inner)]
    return depth


def time_text(value: datetime | str) -> str:
    """The wire form of an aware time: RFC 3339, UTC, six digits. Text passes unchanged."""
    if isinstance(value, str):
        return value
    if value.tzinfo is None:
        raise ValueError("a time needs its time zone")
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
