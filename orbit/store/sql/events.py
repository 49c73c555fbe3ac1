"""The namespace's result stream, and the append-only record of state changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from orbit.store.transaction import Rank, Tx


class ResultEventRow(NamedTuple):
    namespace_id: bytes
    sequence: int
    queue_id: bytes
    task_id: bytes
    epoch: int
    task_state: str
    error_code: str | None
    occurred_at: datetime


class StateEventRow(NamedTuple):
    resource_id: bytes
    revision: int
    namespace_id: bytes
    resource_kind: str
    from_state: str | None
    to_state: str
    occurred_at: datetime


def allocate_sequences(tx: Tx, counts: Mapping[bytes, int]) -> dict[bytes, int]:
    """Return for each namespace the first of so many consecutive numbers.

    Locks: the stream rows (rank 9, sorted), last of all.
    """
    if not counts:
        return {}
    tx.enter(Rank.STREAM)
    ids = sorted(counts)
    branches = " ".join(["WHEN %s THEN %s"] * len(ids))
    tx.write(
        f"UPDATE namespace_streams FORCE INDEX (PRIMARY)"
        f" SET last_sequence = last_sequence + CASE namespace_id {branches} END WHERE namespace_id IN %s",
        [*(value for namespace_id in ids for value in (namespace_id, counts[namespace_id])), ids],
    )
    rows = tx.rows(
        "SELECT namespace_id, last_sequence FROM namespace_streams WHERE namespace_id IN %s", (ids,)
    )
    return {row[0]: int(row[1]) - counts[row[0]] + 1 for row in rows}


def insert_result_events(tx: Tx, rows: Iterable[ResultEventRow]) -> None:
    tx.insert(f"INSERT INTO result_events ({', '.join(ResultEventRow._fields)})", rows)


def insert_state_events(tx: Tx, rows: Iterable[StateEventRow]) -> None:
    tx.insert(f"INSERT INTO state_events ({', '.join(StateEventRow._fields)})", rows)
