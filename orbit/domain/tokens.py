"""Bearer tokens: `orbit_<credential id>_<secret>`; only SHA-256 of the whole text is stored (02-pulse "Identity")."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Final

from orbit.domain.ids import id_text, new_id
from orbit.domain.limits import TOKEN_SECRET_BYTES

TOKEN_PATTERN: Final = r"orbit_[0-9a-f]{32}_[A-Za-z0-9_-]{43,86}"  # noqa: S105 - the shape, no secret

_TOKEN = re.compile(TOKEN_PATTERN)
_ID_START: Final = len("orbit_")
_ID_END: Final = _ID_START + 32


def make_token() -> tuple[bytes, str, bytes]:
    """Return a new credential id (16 bytes), its token text with 256 random bits, and the digest to store."""
    credential_id = new_id()
    text = new_secret(credential_id)
    return credential_id, text, token_digest(text)


def new_secret(credential_id: bytes) -> str:
    """Return a fresh token text for an existing credential (rotation keeps the id)."""
    return f"orbit_{id_text(credential_id)}_{secrets.token_urlsafe(TOKEN_SECRET_BYTES)}"


def parse_token(text: str) -> tuple[bytes, bytes] | None:
    """Return (credential id, digest) of a well-formed token text, else None."""
    if _TOKEN.fullmatch(text) is None:
        return None
    return bytes.fromhex(text[_ID_START:_ID_END]), token_digest(text)


def token_digest(text: str) -> bytes:
    """Return the 32-byte digest under which a token is stored."""
    return hashlib.sha256(text.encode()).digest()


def same_digest(stored: bytes, presented: bytes) -> bool:
    """Compare two digests in constant time."""
    return hmac.compare_digest(stored, presented)
