"""The one table from failures to responses (02-pulse "HTTP conventions")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orbit.domain.errors import InvariantViolation, OrbitError, Unauthenticated

INTERNAL_MESSAGE: Final = "internal error; the log has it under this request id"
# What a refused connection is told: the parser's words about malformed HTTP stay in the log.
HTTP_FAULTS: Final = {
    400: "the request is not well-formed HTTP/1.1",
    431: "the request's headers are too large",
    501: "only chunked transfer encoding is supported",
}

Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure as the caller sees it; never a stack trace."""

    status: int
    code: str
    message: str
    details: dict[str, str] | None = None
    headers: tuple[Header, ...] = ()


def failure_of(error: BaseException) -> Failure:
    """Return what the caller is told; anything that isn't one of Orbit's errors, or is our own bug, is INTERNAL."""
    if not isinstance(error, OrbitError) or isinstance(error, InvariantViolation):
        return Failure(500, "INTERNAL", INTERNAL_MESSAGE)
    headers: tuple[Header, ...] = ()
    if error.status in {429, 503}:
        headers = ((b"retry-after", b"%d" % error.retry_after_seconds),)
    elif isinstance(error, Unauthenticated):
        headers = ((b"www-authenticate", b"Bearer"),)
    return Failure(error.status, error.code, error.message, error.details, headers)


def http_fault(status: int) -> Failure:
    """Return what the sender of malformed HTTP is told."""
    known = status if status in HTTP_FAULTS else 400
    return Failure(known, "INVALID_ARGUMENT", HTTP_FAULTS[known])


def is_our_fault(error: BaseException) -> bool:
    """Tell whether the failure belongs into the log with its traceback."""
    return not isinstance(error, OrbitError) or isinstance(error, InvariantViolation)


def unwrap(error: BaseException) -> BaseException:
    """Return the one error inside a group of one, however deep; the one place where groups are opened."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
