"""Strict JSON for requests and worker frames (02-pulse "HTTP conventions"; measured in stack-facts 7).

Accepted: UTF-8 without a byte order mark, one value, no repeated name at any depth, no lone surrogate, at most 64
levels, and exactly the fields of a frozen `msgspec.Struct` with `forbid_unknown_fields`. `msgspec.Raw` fields keep
their bytes as they came, numbers of any length included, and obey the same rules inside.
Every refusal is InvalidArgument naming the field, whatever the bytes are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from orbit.domain import jsonfaults, limits
from orbit.domain.errors import InvalidArgument

T = TypeVar("T")

_ESCAPED_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_ESCAPED_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_PAIR_BLANK: Final = b" " * 12
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(sorted(set(range(256)) - set(b"[]{}")))

_encoder = msgspec.json.Encoder()


class _DuplicateNameError(Exception):
    """An object repeats a name."""


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> None:
    if len(pairs) != len(dict(pairs)):
        raise _DuplicateNameError


# Numbers stay text: converting a 5,000-digit integer would be slow, and is an error in newer Pythons.
_scan = json.JSONDecoder(object_pairs_hook=_refuse_duplicates, parse_int=str, parse_float=str).decode


@cache
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_)


def encode(value: Any) -> bytes:
    """Return the compact UTF-8 JSON of a Struct, mapping, sequence or scalar; Raw fields byte for byte."""
    return _encoder.encode(value)


def decode(
    raw: bytes, type_: type[T], *, depth: int = limits.JSON_MAX_DEPTH, around: int = 0, root: str = "body"
) -> T:
    """Decode one JSON value of `type_`; InvalidArgument names the field's path, or `root`.

    `around` is the number of levels that `type_` itself puts around its `Raw` fields, which may be `depth` deep.

    `Raw` fields of the result share `raw`'s memory: copy those that outlive the request (`bytes(field)`).
    """
    value: T = _decode(raw, type_, depth, root, around)
    return value


def decode_frames(
    raw: bytes | str, message: Any, *, depth: int = limits.JSON_MAX_DEPTH, around: int = 0
) -> Sequence[Any]:
    """Decode a worker frame, one message object or an array of 1 to 64, into a list of messages.

    `message` is the union of tagged Structs (`tag_field="type"`). Each message may be `depth` levels deep, beside
    the `around` levels that it puts around its `Raw` fields.
    """
    data = raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogatepass")
    if data.lstrip(b" \t\r\n")[:1] != b"[":
        return [_decode(data, message, depth, "frame", around)]
    messages: list[Any] = _decode(data, _list_of(message), depth, "frame", around + 1)
    if not 1 <= len(messages) <= limits.FRAME_MAX_MESSAGES:
        raise InvalidArgument(f"must hold 1 to {limits.FRAME_MAX_MESSAGES} messages", field="frame")
    return messages


@cache
def _list_of(message: Any) -> Any:
    return list[message]


def check(raw: bytes, *, depth: int = limits.JSON_MAX_DEPTH, root: str = "body") -> None:
    """Refuse bytes that aren't one strict JSON value of any shape (for payloads that arrive apart)."""
    _decode(raw, msgspec.Raw, depth, root)


def _decode(raw: bytes, type_: Any, depth: int, root: str, around: int = 0) -> Any:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        field = jsonfaults.top_field(raw, error.start)
        raise jsonfaults.refusal(field, "not valid UTF-8", root) from None
    _check_depth(raw, depth, root, around)
    if b"\\u" in raw:
        _check_surrogates(raw, root)
    try:
        value = _decoder(type_).decode(raw)
        _scan(text)
    except _DuplicateNameError:
        raise jsonfaults.refusal(jsonfaults.duplicate_path(text), "repeated field", root) from None
    except msgspec.ValidationError as error:
        raise jsonfaults.type_refusal(str(error), root) from None
    except (msgspec.DecodeError, ValueError) as error:
        raise jsonfaults.syntax_refusal(raw, str(error), root) from None
    except (RecursionError, OverflowError, MemoryError):
        raise InvalidArgument("can't be decoded", field=root) from None
    return value


def _check_depth(raw: bytes, depth: int, root: str, around: int) -> None:
    if raw.count(b"[") + raw.count(b"{") <= depth + around:
        return
    brackets = _outside_strings(raw).translate(_ONE_KIND, _NOT_BRACKETS)
    for _ in range(depth + around):
        # Each round takes the innermost level of every nest away, at C speed.
        inner = brackets.replace(b"[]", b"")
        if not inner:
            return
        if len(inner) == len(brackets):
            break
        brackets = inner
    at = jsonfaults.too_deep_at(raw, depth + around)
    if at < len(raw):
        raise jsonfaults.refusal(jsonfaults.top_field(raw, at), f"nested deeper than {depth} levels", root)
    # Unbalanced but shallow: the decoder says better what is wrong.


def _outside_strings(raw: bytes) -> bytes:
    """Return what stands outside JSON strings, given that quotes inside are escaped."""
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in raw else raw
    return b"".join(plain.split(b'"')[::2])


def _check_surrogates(raw: bytes, root: str) -> None:
    # Same length throughout, so that an offset found here is an offset into `raw`.
    plain = _ESCAPED_PAIR.sub(_PAIR_BLANK, raw.replace(b"\\\\", b"  "))
    half = _ESCAPED_HALF.search(plain)
    if half is not None:
        raise jsonfaults.surrogate_refusal(raw, half.start(), root)
