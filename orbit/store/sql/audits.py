"""Audits of management commands."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from orbit.store.transaction import Tx


class AuditRow(NamedTuple):
    audit_id: bytes
    application_id: bytes
    namespace_id: bytes
    credential_id: bytes | None
    action: str
    resource_kind: str
    resource_id: bytes
    reason: str
    details: str
    created_at: datetime


def insert_audits(tx: Tx, rows: Iterable[AuditRow]) -> None:
    tx.insert(f"INSERT INTO audits ({', '.join(AuditRow._fields)})", rows)
