"""The installation's one row."""

from __future__ import annotations

from orbit.domain.errors import InvariantViolation
from orbit.store.transaction import Tx


def select_cursor_key(tx: Tx) -> bytes:
    """Read the key that authenticates page cursors (32 bytes, made by the migration)."""
    key: bytes | None = tx.value("SELECT cursor_key FROM installation WHERE id = 1")
    if key is None:
        raise InvariantViolation("the installation's row is missing")
    return key
