"""An open transaction, and the lock order that it enforces (specification 01-architecture, Transactions and locks)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Any, Final, Generic, TypeVar

from pymysql.err import MySQLError

from orbit.domain.errors import InvariantViolation
from orbit.store.driver import DriverConnection, Row, literal
from orbit.store.failures import is_answer

T = TypeVar("T")

# One packet holds at most 16 MiB on MariaDB; a body that is larger than this travels alone.
_PENDING_MAX_CHARS = 4 * 1024 * 1024


class Rank(IntEnum):
    """The order in which rows may be locked: skip ranks, never go back."""

    APPLICATION = 1
    IDENTITY = 2
    DEFINITION = 3
    QUEUE = 4
    INSTANCE = 5
    KEY = 6
    TASK = 7
    ATTEMPT = 8
    STREAM = 9
    # Apart from the others: a transaction that holds one of these takes none of the above.
    SUBSCRIPTION = 20
    DELIVERY = 21


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """A query with its parameters and what to make of its rows; run alone or gathered with others.

    Without `sql` there is nothing to ask, and no rows.
    """

    sql: str
    params: Sequence[Any]
    parse: Callable[[Sequence[Row]], T]


def read_in(sql: str, keys: Sequence[Any], parse: Callable[[Sequence[Row]], T]) -> Read[T]:
    """Return the read of rows whose key is in a list, the query's only parameter; an empty list asks nothing."""
    return Read(sql if keys else "", (list(keys),), parse)


# The database's time, for a read that belongs to others: give it to `Tx.read_clock`.
CLOCK: Final[Read[datetime]] = Read("SELECT UTC_TIMESTAMP(6)", (), lambda rows: rows[0][0])


class Tx:
    """One open transaction on one connection, used by one thread.

    `now` is the database's time in naive UTC, read after the application lock. `resolving` is true when the runner
    repeats work whose COMMIT got no answer: identities made before the transaction may already be stored.
    """

    __slots__ = (
        "_connection",
        "_now",
        "_pending",
        "_pending_size",
        "_rank",
        "is_committing",
        "resolving",
        "statements",
    )

    def __init__(self, connection: DriverConnection, *, resolving: bool = False) -> None:
        self._connection = connection
        self._now: datetime | None = None
        self._rank = 0
        self._pending: list[str] = []
        self._pending_size = 0
        self.resolving = resolving
        # True once a COMMIT may have reached the server.
        self.is_committing = False
        self.statements = 0

    @property
    def now(self) -> datetime:
        if self._now is None:
            self._now = self.value("SELECT UTC_TIMESTAMP(6)")
        assert self._now is not None
        return self._now

    def read_clock(self, now: datetime) -> None:
        """Fix `now` to a time that a statement has just read under the deciding lock."""
        self._now = now

    def enter(self, rank: Rank) -> None:
        """Declare that rows of `rank` are about to be locked; refuse to go back to a lower one."""
        if rank < self._rank or (self._rank >= Rank.SUBSCRIPTION > rank):
            raise InvariantViolation(f"lock of rank {rank.name} asked after {Rank(self._rank).name}")
        self._rank = rank

    def execute(self, sql: str, params: Sequence[Any] = ()) -> int:
        """Run one statement at once and return the number of rows it changed."""
        self.write(sql, params)
        return self.flush()

    def write(self, sql: str, params: Sequence[Any] = ()) -> None:
        """Run a statement whose result nobody needs: it travels with the next read, or with `flush`."""
        self._defer(sql % tuple([literal(value) for value in params]) if params else sql)

    def flush(self) -> int:
        """Send what has been written so far; return the number of rows that the last statement changed."""
        pending = self._take_pending()
        return self._connection.send(pending) if pending else 0

    def commit(self) -> None:
        """Send what is left and the COMMIT behind it, in one round trip."""
        pending = self._take_pending()
        self.is_committing = True
        try:
            self._connection.send([*pending, "COMMIT"])
        except MySQLError as error:
            # The server stops at a write that it refuses: it never comes to the COMMIT.
            if is_answer(error) and self._connection.answered < len(pending):
                self.is_committing = False
            raise

    def rows(self, sql: str, params: Sequence[Any] = ()) -> Sequence[Row]:
        """Run a query and return its rows. A list or tuple parameter renders as `(a, b, c)`."""
        self.execute(sql, params)
        return self._connection.result_rows

    def read(self, read: Read[T]) -> T:
        """Run one read."""
        return read.parse(self.rows(read.sql, read.params) if read.sql else ())

    def gather(self, *reads: Read[Any]) -> list[Any]:
        """Run several reads in one round trip, after what has been written; return what each found."""
        asked = [read for read in reads if read.sql]
        for read in asked:
            self.write(read.sql, read.params)
        results = iter(self._connection.send_all(self._take_pending())[-len(asked) :] if asked else ())
        return [read.parse(next(results) if read.sql else ()) for read in reads]

    def row(self, sql: str, params: Sequence[Any] = ()) -> Row | None:
        found = self.rows(sql, params)
        return found[0] if found else None

    def value(self, sql: str, params: Sequence[Any] = ()) -> Any:
        found = self.row(sql, params)
        return found[0] if found else None

    def insert(self, head: str, rows: Iterable[Sequence[Any]], tail: str = "") -> None:
        """Insert many rows with one statement (`write`): `head` up to the word VALUES, `tail` after the rows."""
        values = ",".join([literal(row) for row in rows])
        if values:
            self._defer(f"{head} VALUES {values} {tail}")

    def _defer(self, statement: str) -> None:
        if self._pending_size + len(statement) > _PENDING_MAX_CHARS:
            self.flush()
        self.statements += 1
        self._pending.append(statement)
        self._pending_size += len(statement)

    def _take_pending(self) -> list[str]:
        pending, self._pending, self._pending_size = self._pending, [], 0
        return pending
