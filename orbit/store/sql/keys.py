"""Concurrency-key rows: who holds a key, and its ever-growing token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from orbit.store.transaction import Tx


class KeyRow(NamedTuple):
    namespace_id: bytes
    key_digest: bytes
    concurrency_key: bytes
    holder_attempt_id: bytes | None
    last_token: int


_SELECT = """
SELECT namespace_id, key_digest, concurrency_key, holder_attempt_id, last_token
FROM concurrency_keys WHERE namespace_id = %s AND key_digest IN %s
"""

_RELEASE = """
UPDATE concurrency_keys FORCE INDEX (PRIMARY)
SET holder_attempt_id = NULL, last_token = last_token + 1
WHERE namespace_id = %s AND key_digest IN %s AND holder_attempt_id IN %s
"""


def select_keys(tx: Tx, namespace_id: bytes, key_digests: Sequence[bytes]) -> dict[bytes, KeyRow]:
    """Read key rows by digest; the application lock keeps them still. A key never taken has no row."""
    if not key_digests:
        return {}
    rows = map(KeyRow._make, tx.rows(_SELECT, (namespace_id, list(key_digests))))
    return {row.key_digest: row for row in rows}


def take_keys(tx: Tx, keys: Iterable[KeyRow]) -> None:
    """Store holders and tokens, making rows for keys taken for the first time. Locks: key rows (rank 6, sorted)."""
    tx.insert(
        f"INSERT INTO concurrency_keys ({', '.join(KeyRow._fields)})",
        sorted(keys),
        "ON DUPLICATE KEY UPDATE holder_attempt_id = VALUES(holder_attempt_id), last_token = VALUES(last_token)",
    )


def release_keys(tx: Tx, namespace_id: bytes, held: Sequence[tuple[bytes, bytes]]) -> None:
    """Release keys given as (digest, holding attempt); releasing raises the token too. Locks: key rows (rank 6)."""
    digests, holders = sorted(pair[0] for pair in held), sorted(pair[1] for pair in held)
    tx.write(_RELEASE, (namespace_id, digests, holders))
