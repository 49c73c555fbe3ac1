"""Field types that several resources share, with their bounds; msgspec checks them and OpenAPI tells them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from orbit.domain.ids import id_text
from orbit.domain.wire import format_time, uint64_text

T = TypeVar("T")

_NAME_ALPHABET = "^[A-Za-z0-9][A-Za-z0-9_.:-]*$"

Id = Annotated[
    str,
    Meta(
        description="128-bit id: 32 lower-case hexadecimal digits",
        extra_json_schema={"pattern": "^[0-9a-f]{32}$"},
    ),
]
Uint64 = Annotated[
    str,
    Meta(
        description="unsigned 64-bit number as a decimal string",
        extra_json_schema={"pattern": "^(0|[1-9][0-9]{0,19})$"},
    ),
]
Time = Annotated[
    str,
    Meta(description="UTC time, RFC 3339 with six digits and Z", extra_json_schema={"format": "date-time"}),
]
Json = Annotated[Any, Meta(description="any JSON value; its bytes come back as they came")]


class Shape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request's body: unknown fields are refused, and null unless a field says otherwise."""


class Answer(Struct, frozen=True, kw_only=True):
    """A response's data; UNSET fields are left out."""


class ErrorPair(Answer, frozen=True, kw_only=True):
    """What a failed task or attempt says about itself."""

    code: str
    message: str


def name_field(what: str, max_chars: int) -> Meta:
    """Describe a field of the queue-name alphabet; `domain.keys` checks it."""
    schema = {"minLength": 1, "maxLength": max_chars, "pattern": _NAME_ALPHABET}
    return Meta(description=what, extra_json_schema=schema)


def key_field(what: str, max_chars: int) -> Meta:
    return Meta(description=what, extra_json_schema={"maxLength": max_chars})


def some(value: T | None) -> T | UnsetType:
    """Return the value, UNSET for None: absent fields are left out of answers."""
    return UNSET if value is None else value


def given(value: T | UnsetType, default: T) -> T:
    """Return what a request gave, `default` where it left the field out."""
    return default if value is UNSET else value


def id_or_unset(value: bytes | None) -> str | UnsetType:
    return UNSET if value is None else id_text(value)


def time_or_unset(value: datetime | None) -> str | UnsetType:
    return UNSET if value is None else format_time(value)


def uint64_or_unset(value: int | None) -> str | UnsetType:
    return UNSET if value is None else uint64_text(value)


def error_or_unset(code: str | None, message: str | None) -> ErrorPair | UnsetType:
    return UNSET if code is None else ErrorPair(code=code, message=message or "")
