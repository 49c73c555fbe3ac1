"""The transaction runner: one connection, whole transactions, bounded repeats, unknown commits resolved."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from pymysql.err import MySQLError

from orbit.domain.errors import InvariantViolation, OrbitError, OutcomeUnknown, Unavailable
from orbit.domain.limits import SECOND_MS, UNKNOWN_COMMIT_RESOLVE_MS
from orbit.store.connection import READ_TIMEOUT_SECONDS, connect, drop
from orbit.store.driver import DriverConnection
from orbit.store.dsn import Dsn
from orbit.store.failures import DEADLOCK, LOCK_TIMEOUT, Failure, classify, error_number
from orbit.store.transaction import Tx

T = TypeVar("T")
Op = TypeVar("Op")

CONTENTION_TRIES = 12
CONTENTION_BUDGET_SECONDS = 8.0
UNKNOWN_BUDGET_SECONDS = UNKNOWN_COMMIT_RESOLVE_MS / SECOND_MS


@dataclass(slots=True)
class SessionStats:
    """Counts since the session was made; read by metrics and benchmarks."""

    commits: int = 0
    statements: int = 0
    deadlocks: int = 0
    lock_timeouts: int = 0
    lost_connections: int = 0
    unknown_commits: int = 0


@dataclass(slots=True)
class _Tries:
    """What a run has been through so far."""

    started: float = field(default_factory=time.monotonic)
    contended: int = 0
    lost: int = 0
    unknown: bool = False

    def elapsed(self) -> float:
        return time.monotonic() - self.started


class Session:
    """Runs transactions on one connection of its own; belongs to one thread.

    The connection is opened when needed, or by `keep_open`, and discarded when it is lost.
    """

    def __init__(
        self,
        dsn: Dsn,
        *,
        connector: Callable[..., DriverConnection] = connect,
        report: Callable[[str, BaseException], None] = lambda *_: None,
    ) -> None:
        self._dsn = dsn
        self._connector = connector
        self._report = report
        self._connection: DriverConnection | None = None
        self.stats = SessionStats()

    def run(self, work: Callable[[Tx], T]) -> T:
        """Run `work` in one transaction and commit.

        Contention reruns the whole of `work`. A COMMIT without an answer reruns it with `tx.resolving` set, for up to
        10 s: `work` must be idempotent on identities made before it.

        Raises:
            Unavailable: nothing was committed; repeat later.
            OutcomeUnknown: it may have been committed; repeat with the original identity only.
            OrbitError: what `work` raised; nothing was committed.
        """
        tries = _Tries()
        while True:
            tx = None
            try:
                tx = Tx(self._open(), resolving=tries.unknown)
                result = work(tx)
                tx.commit()
            except MySQLError as error:
                self._judge(error, tries, committing=tx is not None and tx.is_committing)
                continue
            except BaseException:
                self._roll_back()
                raise
            self.stats.commits += 1
            self.stats.statements += tx.statements
            return result

    def run_group(self, work: Callable[[Tx, Sequence[Op]], list[Any]], operations: Sequence[Op]) -> list[Any]:
        """Run `work` over a list of operations; return one outcome or `OrbitError` for each, in order.

        Bad data and exceptions rerun the operations one by one, so that only the guilty one fails (INTERNAL).
        """
        try:
            return self.run(lambda tx: work(tx, operations))
        except OrbitError as error:
            return [error] * len(operations)
        except Exception as error:  # noqa: BLE001 - the guilty operation is found by running each alone
            if len(operations) == 1:
                self._report("operation_failed", error)
                return [InvariantViolation("the operation failed; it was rolled back")]
        return [self.run_group(work, [operation])[0] for operation in operations]

    def keep_open(self) -> None:
        """Have a connection open while nothing runs, so that the next transaction needn't wait for one."""
        try:
            if self._connection is not None:
                self._connection.ping(reconnect=False)
        except MySQLError:
            self._discard()
        # Whatever stands against it, the next transaction meets it too and tells.
        with suppress(Exception):
            self._open()

    def close(self) -> None:
        if self._connection is not None:
            self._discard()

    def _open(self) -> DriverConnection:
        if self._connection is None:
            self._connection = self._connector(self._dsn)
        return self._connection

    def _judge(self, error: MySQLError, tries: _Tries, *, committing: bool) -> None:
        """Return if the transaction is to be rerun, raise what the caller gets otherwise."""
        failure = classify(error)
        if failure is Failure.LOST:
            self._after_loss(error, tries, committing=committing)
        elif failure is Failure.CONTENTION:
            self._roll_back()
            self._after_contention(error, tries)
        else:
            self._roll_back()
            raise error

    def _after_loss(self, error: MySQLError, tries: _Tries, *, committing: bool) -> None:
        self._discard()
        self.stats.lost_connections += 1
        tries.lost += 1
        if committing and not tries.unknown:
            tries.unknown = True
            self.stats.unknown_commits += 1
        if tries.unknown:
            if tries.elapsed() > UNKNOWN_BUDGET_SECONDS:
                raise OutcomeUnknown("the outcome is unknown; repeat with the original identity") from error
            _pause(0.05 * min(tries.lost, 10))
        elif tries.lost > 1:
            # One silent reconnect covers a connection that died while idle; beyond that the database is away.
            raise Unavailable("the database is unavailable") from error

    def _after_contention(self, error: MySQLError, tries: _Tries) -> None:
        number = error_number(error)
        self.stats.deadlocks += number == DEADLOCK
        self.stats.lock_timeouts += number == LOCK_TIMEOUT
        tries.contended += 1
        if tries.contended >= CONTENTION_TRIES or tries.elapsed() > CONTENTION_BUDGET_SECONDS:
            kind = OutcomeUnknown if tries.unknown else Unavailable
            raise kind("the database is contended; repeat later") from error
        _pause(0.002 * 2 ** min(tries.contended, 5))

    def _roll_back(self) -> None:
        if self._connection is None:
            return
        try:
            self._connection.rollback()
        except MySQLError:
            self._discard()

    def _discard(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            drop(connection)


class Reader(Session):
    """Runs reads on an autocommitting connection: no BEGIN, no COMMIT, each statement its own snapshot.

    A statement that takes longer than `read_timeout` seconds counts as a lost connection.
    """

    def __init__(self, dsn: Dsn, *, read_timeout: float = READ_TIMEOUT_SECONDS, **options: Any) -> None:
        connector = partial(connect, read_timeout=read_timeout, autocommit=True)
        super().__init__(dsn, connector=connector, **options)

    def run(self, work: Callable[[Tx], T]) -> T:
        """Run reads; a lost connection or contention reruns them, since nothing is written."""
        tries = _Tries()
        while True:
            try:
                return work(Tx(self._open()))
            except MySQLError as error:
                self._judge(error, tries, committing=False)


def _pause(seconds: float) -> None:
    time.sleep(seconds * random.uniform(0.5, 1.0))
