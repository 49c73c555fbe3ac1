"""See that a connection really waits for another's row lock, and how many rows a transaction has locked."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from orbit.localdb.bundle import Flavour
from orbit.localdb.instance import Instance
from orbit.store.connection import connect
from orbit.store.dsn import Dsn
from orbit.store.session import Session
from orbit.store.transaction import Tx
from tests.support.eventually import eventually

Result = TypeVar("Result")

# Either server's view of who waits for whom, as connection ids.
_WAITS = {
    Flavour.MYSQL: """
        SELECT r.processlist_id, b.processlist_id FROM performance_schema.data_lock_waits w
        JOIN performance_schema.threads r ON r.thread_id = w.requesting_thread_id
        JOIN performance_schema.threads b ON b.thread_id = w.blocking_thread_id
    """,
    Flavour.MARIADB: """
        SELECT r.trx_mysql_thread_id, b.trx_mysql_thread_id FROM information_schema.innodb_lock_waits w
        JOIN information_schema.innodb_trx r ON r.trx_id = w.requesting_trx_id
        JOIN information_schema.innodb_trx b ON b.trx_id = w.blocking_trx_id
    """,
}
_LOCKED = """
SELECT CONCAT(l.object_name, '.', l.index_name), COUNT(DISTINCT l.lock_data) FROM performance_schema.data_locks l
JOIN performance_schema.threads t ON t.thread_id = l.thread_id
WHERE t.processlist_id = {connection} AND l.lock_type = 'RECORD' AND l.lock_status = 'GRANTED'
GROUP BY l.object_name, l.index_name
"""
# MariaDB refreshes these views only when nobody has read them for a tenth of a second.
_PAUSE = {Flavour.MYSQL: 0.02, Flavour.MARIADB: 0.12}
_TRX_ROWS = (
    "SELECT trx_rows_locked FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = {connection}"
)


def waits(instance: Instance) -> list[tuple[int, int]]:
    """Return pairs of connection ids (who waits, who holds) of the whole server."""
    return [(int(str(a)), int(str(b))) for a, b in instance.execute(_WAITS[instance.flavour])]


def await_waiter(instance: Instance, waiter: int, *, holder: int | None = None, within: float = 5.0) -> None:
    """Return once the connection `waiter` waits for a row lock (of `holder`)."""
    eventually(
        lambda: any(pair[0] == waiter and holder in (None, pair[1]) for pair in waits(instance)),
        within=within,
        what=f"connection {waiter} waits for a row lock",
        pause=_PAUSE[instance.flavour],
    )


def await_waiters(instance: Instance, count: int, *, within: float = 5.0) -> None:
    """Return once at least `count` connections wait for row locks."""
    eventually(
        lambda: len({pair[0] for pair in waits(instance)}) >= count,
        within=within,
        what=f"{count} connections wait for row locks",
        pause=_PAUSE[instance.flavour],
    )


def await_no_waiter(instance: Instance, waiter: int, *, within: float = 5.0) -> None:
    """Return once the connection `waiter` waits for nobody."""
    eventually(
        lambda: all(pair[0] != waiter for pair in waits(instance)),
        within=within,
        what=f"connection {waiter} waits no more",
        pause=_PAUSE[instance.flavour],
    )


def locked_rows(instance: Instance, connection: int) -> Counter[str]:
    """Return how many records a connection's open transaction has locked, by `table.index`.

    MariaDB has no view of granted locks: there one entry, `rows`, counts all records of all indexes.
    """
    if instance.flavour is Flavour.MYSQL:
        rows = instance.execute(_LOCKED.format(connection=connection))
        return Counter({str(name): int(str(count)) for name, count in rows})
    rows = instance.execute(_TRX_ROWS.format(connection=connection))
    return Counter({"rows": int(str(rows[0][0]))}) if rows else Counter()


def connection_id(tx: Tx) -> int:
    return int(tx.value("SELECT CONNECTION_ID()"))


@contextmanager
def holding(dsn: Dsn, sql: str, params: tuple[Any, ...] = ()) -> Iterator[int]:
    """Hold the locks of one statement on a side connection, whose id is given; rolled back at the end."""
    connection = connect(dsn)
    try:
        Tx(connection).execute(sql, params)
        yield int(Tx(connection).value("SELECT CONNECTION_ID()"))
        connection.rollback()
    finally:
        connection.close()


@contextmanager
def holding_application(dsn: Dsn, application_id: bytes) -> Iterator[int]:
    """Hold an application's write lock on a side connection, whose id is given."""
    sql = "SELECT application_id FROM application_quotas WHERE application_id = %s FOR UPDATE"
    with holding(dsn, sql, (application_id,)) as holder:
        yield holder


class Background:
    """Something running on a thread and a session of its own; `result` waits for it and raises what it raised."""

    def __init__(self, dsn: Dsn, work: Callable[[Session], Any], **options: Any) -> None:
        self._work = work
        self._session = Session(dsn, **options)
        self._outcome: Any = None
        self._error: BaseException | None = None
        # Known before the work begins, so that its waiting can be watched.
        self.connection = self._session.run(connection_id)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def result(self, within: float = 20.0) -> Any:
        self._thread.join(within)
        assert not self._thread.is_alive(), f"still running after {within:g} s"
        if self._error is not None:
            raise self._error
        return self._outcome

    def _run(self) -> None:
        try:
            self._outcome = self._work(self._session)
        except BaseException as error:  # noqa: BLE001 - handed to whoever asks for the result
            self._error = error
        finally:
            self._session.close()
