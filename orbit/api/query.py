"""Query parameters, as strict as bodies: none is ignored, none may come twice."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import unquote_to_bytes

from orbit.domain.errors import InvalidArgument
from orbit.domain.limits import PAGE_DEFAULT, PAGE_MAX


def parse_query(query: bytes, allowed: Collection[str]) -> dict[str, str]:
    """Return the parameters by name.

    Raises: InvalidArgument for an unknown or repeated name, and for bytes that aren't UTF-8.
    """
    found: dict[str, str] = {}
    for part in query.split(b"&") if query else ():
        name, _, value = part.partition(b"=")
        field = _text(name, "query")
        if field not in allowed:
            raise InvalidArgument("unknown parameter", field=field[:64] or "query")
        if field in found:
            raise InvalidArgument("is given twice", field=field)
        found[field] = _text(value, field)
    return found


def page_limit(parameters: dict[str, str]) -> int:
    """Return `limit`, 1 to 100 (default 20)."""
    text = parameters.get("limit")
    if text is None:
        return PAGE_DEFAULT
    if not (text.isascii() and text.isdecimal() and len(text) <= 4 and 1 <= int(text) <= PAGE_MAX):
        raise InvalidArgument(f"must be 1 to {PAGE_MAX}", field="limit")
    return int(text)


def _text(data: bytes, field: str) -> str:
    try:
        return unquote_to_bytes(data.replace(b"+", b" ")).decode()
    except UnicodeDecodeError:
        raise InvalidArgument("not valid UTF-8", field=field) from None
