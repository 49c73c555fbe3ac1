"""The work of all measurements: a handler that does nothing, with about 100 bytes of payload."""

from __future__ import annotations

from typing import Any, Final, TypedDict

HANDLER: Final = "noop"
VERSION: Final = "v1"


class Job(TypedDict):
    """`i` number, `t` monotonic seconds at the submit (0: nobody asks), `k` key, `s` milliseconds to sleep."""

    i: int
    t: float
    k: int
    s: int
    d: str


def job(number: int, *, key: int = 0, at: float = 0.0) -> dict[str, Any]:
    """Return the payload that the comparison with other systems uses too."""
    return {"i": number, "t": at, "k": key, "s": 0, "d": "x" * 60}
