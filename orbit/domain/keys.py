"""Rules for names, keys and texts, and the byte digests by which keys are matched (02-pulse, claiming.md).

Keys match by their UTF-8 bytes: no case folding, no normalisation, no padding, whatever the database's collation.
Each check returns what is to be stored, or raises InvalidArgument naming `field`.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Final

from orbit.domain import limits
from orbit.domain.errors import InvalidArgument

DIGEST_BYTES: Final = 32
SHORT_DIGEST_BYTES: Final = 16
NO_KEY: Final = bytes(DIGEST_BYTES)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]*")
_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]+")
_NOT_IN_CODES = re.compile(r"[^\x20-\x7e]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def check_name(text: str, field: str, *, max_chars: int = limits.QUEUE_NAME_MAX_CHARS) -> str:
    """Check a queue, handler or version name: ASCII letter or digit first, then also `_ . : -`."""
    if not 1 <= len(text) <= max_chars:
        raise InvalidArgument(f"must have 1 to {max_chars} characters", field=field)
    if _NAME.fullmatch(text) is None:
        raise InvalidArgument("must start with a letter or digit, then letters, digits, _ . : -", field=field)
    return text


def check_handler(text: str, field: str = "handler") -> str:
    """Check a handler's name (1 to 128 characters)."""
    return check_name(text, field, max_chars=limits.HANDLER_MAX_CHARS)


def check_version(text: str, field: str = "handler_version") -> str:
    """Check a handler's or payload's version (1 to 64 characters)."""
    return check_name(text, field, max_chars=limits.VERSION_MAX_CHARS)


def check_concurrency_key(key: str, field: str = "concurrency_key") -> str | None:
    """Check a resource key; "" means none (None). No control characters, no white space at either end."""
    if not key:
        return None
    _check_chars(key, field, limits.CONCURRENCY_KEY_MAX_CHARS)
    if key[0].isspace() or key[-1].isspace():
        raise InvalidArgument("must not start or end with white space", field=field)
    if not (key.isascii() and key.isprintable()) and any(unicodedata.category(c) == "Cc" for c in key):
        raise InvalidArgument("must not contain control characters", field=field)
    return key


def check_business_key(key: str, field: str = "business_key") -> str | None:
    """Check a tracing key; "" means none (None). White space is significant."""
    if not key:
        return None
    _check_chars(key, field, limits.BUSINESS_KEY_MAX_CHARS)
    return key


def check_idempotency_key(key: str, field: str = "Idempotency-Key") -> str:
    """Check a command's identity: 1 to 191 bytes of 0x21 to 0x7E."""
    if len(key) > limits.IDEMPOTENCY_KEY_MAX_BYTES or _IDEMPOTENCY_KEY.fullmatch(key) is None:
        raise InvalidArgument(
            f"must be 1 to {limits.IDEMPOTENCY_KEY_MAX_BYTES} visible ASCII characters", field=field
        )
    return key


def check_reason(text: str, field: str = "reason") -> str:
    """Check a person's reason: not blank, at most 1,024 characters."""
    if not text.strip():
        raise InvalidArgument("must not be blank", field=field)
    _check_chars(text, field, limits.REASON_MAX_CHARS)
    return text


def check_text_storable(text: str, field: str, *, max_bytes: int | None = None) -> str:
    """Refuse text that has no UTF-8 form (lone surrogates) or more than `max_bytes` UTF-8 bytes."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidArgument("holds a lone surrogate", field=field) from None
    if max_bytes is not None and size > max_bytes:
        raise InvalidArgument(f"must have at most {max_bytes} bytes of UTF-8", field=field)
    return text


def clean_text(text: str, max_bytes: int) -> str:
    """Return `text` with lone surrogates replaced and cut at a character to `max_bytes` UTF-8 bytes.

    For what a worker says about a failure: it must always be possible to record one.
    """
    data = _SURROGATE.sub("\ufffd", text).encode()
    return text_of(data[:max_bytes]) if len(data) > max_bytes else data.decode()


def clean_error_code(text: str) -> str:
    """Return an error code of 1 to 64 printable ASCII characters, `_` for others; a blank one becomes `ERROR`."""
    return _NOT_IN_CODES.sub("_", text[: limits.ERROR_CODE_MAX_CHARS]) if text.strip() else "ERROR"


def clean_error_message(text: str) -> str:
    """Return an error message of at most 4 KiB of UTF-8 that can be stored."""
    return clean_text(text, limits.ERROR_MESSAGE_MAX_BYTES)


def text_of(data: bytes) -> str:
    """Return the text of UTF-8 bytes whose end may cut a character: the cut character is left out."""
    return data.decode("utf-8", "ignore")


def key_digest(key: str | None) -> bytes:
    """Return the 32 bytes by which a concurrency or business key is matched (NO_KEY for none)."""
    return hashlib.sha256(key.encode()).digest() if key else NO_KEY


def handler_digest(handler: str, version: str) -> bytes:
    """Return the 16 bytes that stand for a handler and its version."""
    return hashlib.sha256(b"%b\x00%b" % (handler.encode(), version.encode())).digest()[:SHORT_DIGEST_BYTES]


def lane_id(queue_id: bytes, handler_digest: bytes, key_digest: bytes) -> bytes:
    """Return the 16 bytes that stand for a lane: one queue, handler version and key."""
    return hashlib.sha256(queue_id + handler_digest + key_digest).digest()[:SHORT_DIGEST_BYTES]


def _check_chars(text: str, field: str, max_chars: int) -> None:
    if len(text) > max_chars:
        raise InvalidArgument(f"must have at most {max_chars} characters", field=field)
    check_text_storable(text, field)
