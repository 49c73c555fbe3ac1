"""How times and 64-bit numbers travel (02-pulse "HTTP conventions").

Times are naive UTC `datetime` inside and `YYYY-MM-DDTHH:MM:SS.ffffffZ` on the wire; uint64 are decimal strings,
because many JSON readers round large numbers.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from orbit.domain.errors import InvalidArgument, InvariantViolation
from orbit.domain.limits import UINT64_MAX

# What DATETIME is documented to hold on both servers.
YEAR_MIN: Final = 1000

_TIME = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?Z")
_UINT64 = re.compile(r"0|[1-9][0-9]{0,19}")


def format_time(value: datetime) -> str:
    """Return the RFC 3339 text, six digits and `Z`, of a naive UTC datetime."""
    if value.tzinfo is not None:
        raise InvariantViolation("times inside the server are naive UTC")
    return value.isoformat(timespec="microseconds") + "Z"


def parse_time(text: str, field: str) -> datetime:
    """Return the naive UTC datetime of `YYYY-MM-DDTHH:MM:SS[.1-6 digits]Z`; else InvalidArgument naming `field`."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise InvalidArgument("must be a UTC time such as 2026-01-31T08:00:00.000000Z", field=field)
    *whole, fraction = found.groups()
    year, month, day, hour, minute, second = map(int, whole)
    try:
        moment = datetime(year, month, day, hour, minute, second, int((fraction or "0").ljust(6, "0")))
    except ValueError:
        raise InvalidArgument("is no real date and time", field=field) from None
    if year < YEAR_MIN:
        raise InvalidArgument(f"must lie in the year {YEAR_MIN} or later", field=field)
    return moment


def uint64_text(value: int) -> str:
    """Return the decimal text of 0 to 2^64 - 1; anything else is a bug of ours."""
    if not 0 <= value <= UINT64_MAX:
        raise InvariantViolation("number lies outside 64 unsigned bits")
    return str(value)


def parse_uint64(text: str, field: str, minimum: int = 0) -> int:
    """Return the number of a decimal text without sign or leading zero, `minimum` to 2^64 - 1."""
    if _UINT64.fullmatch(text) is None:
        raise InvalidArgument("must be a decimal string without sign or leading zeros", field=field)
    value = int(text)
    if not minimum <= value <= UINT64_MAX:
        raise InvalidArgument(f"must lie between {minimum} and {UINT64_MAX}", field=field)
    return value
