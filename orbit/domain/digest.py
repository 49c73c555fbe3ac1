"""Fingerprints of accepted commands and the identity of their receipts (02-pulse "Idempotency", claiming.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, TypeAlias

# A bool is an int to the type checker, not to the encoding.
FieldValue: TypeAlias = bytes | str | int | None

_COMMAND: Final = b"orbit.command.1\x00"
_RECEIPT: Final = b"orbit.receipt.1\x00"


def command_digest(command_name: str, fields: Sequence[tuple[str, FieldValue]]) -> bytes:
    """Return the 32-byte digest of a typed command, path ids and raw payload bytes among its fields.

    Every part is preceded by its length and every value by its type, so no two commands share an encoding. Fields
    count by name, in any order; a None is left out, so that a new optional field changes no old digest.
    """
    parts = [_COMMAND, _sized(command_name.encode())]
    for name, value in sorted(fields, key=_name_of):
        if value is not None:
            parts.append(_sized(name.encode()))
            parts.append(_typed(value))
    return hashlib.sha256(b"".join(parts)).digest()


def receipt_id(application_id: bytes, namespace_id: bytes, action: str, key: str) -> bytes:
    """Return the 32-byte primary key of the receipt of one identity."""
    parts = (_RECEIPT, *map(_sized, (application_id, namespace_id, action.encode(), key.encode())))
    return hashlib.sha256(b"".join(parts)).digest()


def _name_of(field: tuple[str, FieldValue]) -> str:
    return field[0]


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _typed(value: bytes | str | int) -> bytes:
    if isinstance(value, bytes):
        return b"b" + _sized(value)
    if isinstance(value, str):
        return b"s" + _sized(value.encode())
    if isinstance(value, bool):
        return b"1" if value else b"0"
    return b"i" + _sized(b"%d" % value)
