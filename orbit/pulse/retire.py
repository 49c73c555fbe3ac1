"""Deletes what nothing needs any more, in small batches; decides no lease (claiming.md, failure case C07)."""

from __future__ import annotations

from collections.abc import Sequence

from orbit.store.sql.applications import lock_application
from orbit.store.sql.retirement import delete_gone_workers, delete_idle_lanes
from orbit.store.transaction import Tx


def retire_lanes(tx: Tx, application_id: bytes, lane_ids: Sequence[bytes]) -> int:
    """Delete lanes that hold no ready task and were untouched for ten minutes; return how many.

    A lane that is needed again is made again by the transaction that makes a task of it ready.

    Locks: the application, then lanes. Writes: lanes.
    """
    lock_application(tx, application_id)
    return delete_idle_lanes(tx, application_id, lane_ids)


def retire_workers(tx: Tx, application_id: bytes, worker_refs: Sequence[bytes]) -> int:
    """Delete registrations whose session ended a day ago and that hold no live attempt; return how many.

    An attempt's fate depends on its own lease alone: this changes none.

    Locks: the application. Writes: worker sessions.
    """
    lock_application(tx, application_id)
    return delete_gone_workers(tx, application_id, worker_refs)
