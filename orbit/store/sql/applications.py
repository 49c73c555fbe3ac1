"""The application quota row: an application's limits, its usage, and its write lock."""

from __future__ import annotations

from typing import Any, NamedTuple

from orbit.domain.errors import NotFound
from orbit.store.transaction import Rank, Read, Tx


class ApplicationRow(NamedTuple):
    application_id: bytes
    max_unfinished: int
    max_active: int
    unfinished: int
    active: int


_LOCK = "UPDATE application_quotas SET row_version = row_version + 1 WHERE application_id = %s"
_READ = """
SELECT application_id, max_unfinished, max_active, unfinished, active, UTC_TIMESTAMP(6)
FROM application_quotas WHERE application_id = %s
"""
_USE = """
UPDATE application_quotas SET unfinished = unfinished + %s, active = active + %s WHERE application_id = %s
"""


def lock_application(tx: Tx, application_id: bytes, *reads: Read[Any]) -> tuple[ApplicationRow, list[Any]]:
    """Take the application's write lock by writing its quota row, and fix `tx.now` under it.

    Writing, not only locking, is what makes a conflict visible to certification-based clusters. `reads` run under the
    lock in the same round trip; returns the quota row and what they found.

    Locks: the quota row (rank 1). Raises: NotFound for an unknown application.
    """
    tx.enter(Rank.APPLICATION)
    tx.write(_LOCK, (application_id,))
    rows, *found = tx.gather(Read(_READ, (application_id,), list), *reads)
    if not rows:
        raise NotFound("application not found")
    tx.read_clock(rows[0][5])
    return ApplicationRow._make(rows[0][:5]), found


def update_application_usage(tx: Tx, application_id: bytes, *, unfinished: int, active: int) -> None:
    """Add the two differences; an underflow is a data error of the server (1690), never a negative count."""
    tx.write(_USE, (unfinished, active, application_id))
