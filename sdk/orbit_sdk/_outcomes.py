"""How a handler ends: the exceptions it may raise, and the outcome that is reported."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import trio
from msgspec import Raw

from orbit_sdk._errors import OrbitError
from orbit_sdk._json import check_document, encode

ERROR_CODE_MAX_CHARS: Final = 64
ERROR_MESSAGE_MAX_BYTES: Final = 4096
OUTPUT_MAX_BYTES: Final = 256 * 1024
RETRY_AFTER_MAX_MS: Final = 86_400_000
_REPLACEMENT: Final = "\ufffd"
_KEPT_CONTROLS: Final = frozenset("\n\t")

SUCCEEDED: Final = "SUCCEEDED"
FAILED: Final = "FAILED"
RETRY: Final = "RETRY"
UNKNOWN: Final = "UNKNOWN"
ONCE: Final = "ONCE"
NO_OUTPUT: Final = Raw(b"null")


class HandlerSignal(OrbitError):
    """What a handler raises to say how its attempt ended."""


class Retry(HandlerSignal):
    """Nothing harmful happened: try again, under the task's policy or after `after` (seconds or timedelta, ≤ 1 day)."""

    def __init__(
        self,
        message: str = "the handler asked for another attempt",
        *,
        after: float | timedelta | None = None,
        code: str = "RETRY",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        if seconds is not None and not 0 <= seconds * 1000 <= RETRY_AFTER_MAX_MS:
            raise ValueError("after is 0 seconds to 1 day")
        self.after_ms = None if seconds is None else round(seconds * 1000)


class Fail(HandlerSignal):
    """The task can never succeed: end it as FAILED with this code (≤ 64 characters) and message (≤ 4 KiB)."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


class Unknown(HandlerSignal):
    """Whether the effect happened is not known: the task goes to review, or reruns if it was submitted so."""

    def __init__(self, reason: str, *, code: str = "EFFECT_UNKNOWN") -> None:
        super().__init__(reason)
        self.message = reason
        self.code = code


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is reported for an attempt: SUCCEEDED with its output, or FAILED, RETRY or UNKNOWN with code and message."""

    kind: str
    output: Raw | None = None
    code: str | None = None
    message: str | None = None
    retry_after_ms: int | None = None


SUCCEEDED_WITHOUT_OUTPUT: Final = Outcome(SUCCEEDED, NO_OUTPUT)


def outcome_of_value(value: Any, *, effect: str | None, limit: int = OUTPUT_MAX_BYTES) -> Outcome:
    """The outcome of a returned value; one that cannot be stored ends the task, because its effect has happened."""
    if value is None:
        return SUCCEEDED_WITHOUT_OUTPUT
    try:
        output = encode(value)
        if len(output) > limit:
            text = f"the output has {len(output)} bytes, the limit is {limit}"
            return unusable_output("OUTPUT_TOO_LARGE", text, effect=effect)
        check_document(output)
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        return unusable_output("OUTPUT_INVALID", f"the output is not JSON: {exc}", effect=effect)
    return Outcome(SUCCEEDED, Raw(output))


def unusable_output(code: str, message: str, *, effect: str | None) -> Outcome:
    """The outcome of a handler that succeeded with an output that cannot be stored."""
    return _problem(UNKNOWN if effect == ONCE else FAILED, code, message)


def outcome_of_error(error: BaseException, *, effect: str | None) -> Outcome:
    """The outcome of a raised exception; a group counts as its most careful member."""
    error = _deciding(error)
    if isinstance(error, Retry):
        return Outcome(RETRY, None, clean_code(error.code), clean_message(error.message), error.after_ms)
    if isinstance(error, Fail):
        return _problem(FAILED, error.code, error.message)
    if isinstance(error, Unknown):
        return _problem(UNKNOWN, error.code, error.message)
    return interrupted(type(error).__name__, _text_of(error), effect=effect)


def interrupted(code: str, message: str, *, effect: str | None) -> Outcome:
    """The outcome of a handler that did not come to its end: a safe retry, or unknown where it must run only once."""
    return _problem(UNKNOWN if effect == ONCE else RETRY, code, message)


def clean_code(code: str) -> str:
    """At most 64 visible ASCII characters, never empty."""
    kept = "".join(c if "!" <= c <= "~" else "_" for c in str(code)[:ERROR_CODE_MAX_CHARS])
    return kept or "ERROR"


def clean_message(message: str) -> str:
    """At most 4 KiB of UTF-8 without what cannot be stored: lone surrogates and control characters."""
    text = str(message)[:ERROR_MESSAGE_MAX_BYTES]
    if not text.isprintable():
        text = "".join(c if _is_storable(c) else _REPLACEMENT for c in text)
    encoded = text.encode()
    if len(encoded) <= ERROR_MESSAGE_MAX_BYTES:
        return text
    return encoded[:ERROR_MESSAGE_MAX_BYTES].decode(errors="ignore")


def _is_storable(character: str) -> bool:
    if "\ud800" <= character <= "\udfff":
        return False
    return character in _KEPT_CONTROLS or not (character < " " or "\x7f" <= character <= "\x9f")


def _problem(kind: str, code: str, message: str) -> Outcome:
    return Outcome(kind, None, clean_code(code), clean_message(message))


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide that the handler failed
        return "the exception has no readable text"


def _deciding(error: BaseException) -> BaseException:
    """The leaf of a group that decides: an unknown effect first, then an unforeseen error, then Fail, then Retry."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [leaf for leaf in _leaves(error) if not isinstance(leaf, trio.Cancelled)]
    order = (Unknown, BaseException, Fail, Retry)
    for kind in order:
        for leaf in leaves:
            if isinstance(leaf, kind) and (kind is not BaseException or not isinstance(leaf, HandlerSignal)):
                return leaf
    return error


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found
