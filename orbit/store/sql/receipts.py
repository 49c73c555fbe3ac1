"""Receipts: the identity of each accepted command and its frozen first answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from orbit.store.transaction import Tx


class ReceiptRow(NamedTuple):
    receipt_id: bytes
    application_id: bytes
    request_digest: bytes
    resource_id: bytes
    body: bytes | None
    created_at: datetime


def select_receipts(tx: Tx, receipt_ids: Sequence[bytes]) -> dict[bytes, ReceiptRow]:
    """Read receipts by identity; the application lock keeps them still."""
    if not receipt_ids:
        return {}
    sql = """
        SELECT receipt_id, application_id, request_digest, resource_id, body, created_at
        FROM receipts WHERE receipt_id IN %s
    """
    rows = map(ReceiptRow._make, tx.rows(sql, (list(receipt_ids),)))
    return {row.receipt_id: row for row in rows}


def insert_receipts(tx: Tx, receipts: Iterable[ReceiptRow]) -> None:
    tx.insert(
        "INSERT INTO receipts (receipt_id, application_id, request_digest, resource_id, body, created_at)",
        receipts,
    )
