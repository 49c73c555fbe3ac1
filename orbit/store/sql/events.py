"""The namespace's result stream, and the append-only record of state changes."""

from __future__ import annotations

from collections.abc import Iterable
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


def allocate_sequences(tx: Tx, namespace_id: bytes, count: int) -> int:
    """Take the stream row's lock, last of all, and return the first of `count` consecutive numbers (rank 9)."""
    tx.enter(Rank.STREAM)
    tx.write(
        "UPDATE namespace_streams SET last_sequence = last_sequence + %s WHERE namespace_id = %s",
        (count, namespace_id),
    )
    last = tx.value("SELECT last_sequence FROM namespace_streams WHERE namespace_id = %s", (namespace_id,))
    return int(last) - count + 1


def insert_result_events(tx: Tx, rows: Iterable[ResultEventRow]) -> None:
    tx.insert(f"INSERT INTO result_events ({', '.join(ResultEventRow._fields)})", rows)


def insert_state_events(tx: Tx, rows: Iterable[StateEventRow]) -> None:
    tx.insert(f"INSERT INTO state_events ({', '.join(StateEventRow._fields)})", rows)
