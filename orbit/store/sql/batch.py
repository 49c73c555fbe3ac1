"""One UPDATE for many rows by id: its number of statements doesn't grow with the group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orbit.store.transaction import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateById:
    """Changes rows of `table` found by `key`, through `index` (forced: small tables tempt the optimiser to scan, and so
    to lock, everything).
    """

    table: str
    index: str
    key: str

    def run(
        self, tx: Tx, columns: Sequence[str], changes: Mapping[bytes, Sequence[Any]], *, always: str = ""
    ) -> None:
        """Set `columns` as `changes` says (id to the columns' values), and `always` on every row.

        A value that all rows share is set plainly, others by CASE; `always` is an assignment like
        `revision = revision + 1`.
        """
        if not changes:
            return
        ids = sorted(changes)
        parts, params = [always] if always else [], list[Any]()
        for position, column in enumerate(columns):
            values = [changes[row_id][position] for row_id in ids]
            if all(value == values[0] for value in values):
                parts.append(f"{column} = %s")
                params.append(values[0])
            else:
                branches = " ".join(["WHEN %s THEN %s"] * len(ids))
                parts.append(f"{column} = CASE {self.key} {branches} END")
                params += [item for pair in zip(ids, values, strict=True) for item in pair]
        params.append(ids)
        tx.write(
            f"UPDATE {self.table} FORCE INDEX ({self.index}) SET {', '.join(parts)} WHERE {self.key} IN %s",
            params,
        )
