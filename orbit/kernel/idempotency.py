"""Replay, conflict or first: what an idempotency identity says about a command (02-pulse, Idempotency)."""

from __future__ import annotations

from orbit.domain.errors import IdempotencyConflict
from orbit.store.sql.receipts import ReceiptRow


def replayed(receipt: ReceiptRow | None, request_digest: bytes) -> ReceiptRow | None:
    """Return the receipt of a repeated command, None for a first one.

    Raises:
        IdempotencyConflict: the identity was used with other content.
    """
    if receipt is not None and receipt.request_digest != request_digest:
        raise IdempotencyConflict("the idempotency key was used before with other content")
    return receipt
