"""One connection to the database, with the session settings that every transaction relies on."""

from __future__ import annotations

import ssl
from typing import Any

from pymysql.constants import CLIENT

from orbit.store.driver import DriverConnection
from orbit.store.dsn import Dsn

CONNECT_TIMEOUT_SECONDS = 3.0
READ_TIMEOUT_SECONDS = 5.0
LOCK_WAIT_SECONDS = 3
# A frozen holder frees its locks after this long; living idle connections are pinged well before.
WAIT_TIMEOUT_SECONDS = 8
PING_INTERVAL_SECONDS = 2.5

_SQL_MODE = "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
_SESSION = (
    f"SET SESSION sql_mode='{_SQL_MODE}', time_zone='+00:00', "
    f"innodb_lock_wait_timeout={LOCK_WAIT_SECONDS}, wait_timeout={WAIT_TIMEOUT_SECONDS}"
)
_ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"


def connect(
    dsn: Dsn, *, read_timeout: float = READ_TIMEOUT_SECONDS, autocommit: bool = False
) -> DriverConnection:
    """Open a connection: READ COMMITTED, strict mode, UTC, utf8mb4, bounded waits.

    Raises:
        pymysql.err.MySQLError: the server can't be reached or refuses the user.
    """
    connection = DriverConnection(
        user=dsn.user,
        password=dsn.password,
        host=dsn.host,
        port=dsn.port,
        database=dsn.database or None,
        unix_socket=dsn.unix_socket,
        charset="utf8mb4",
        connect_timeout=CONNECT_TIMEOUT_SECONDS,
        read_timeout=read_timeout,
        write_timeout=read_timeout,
        autocommit=autocommit,
        # A transaction sends its writes together with its next read (`Tx.write`): one round trip instead of many.
        client_flag=CLIENT.MULTI_STATEMENTS,
        **_tls_arguments(dsn),
    )
    try:
        connection.send([_SESSION, _ISOLATION])
    except BaseException:
        connection.close()
        raise
    return connection


def drop(connection: DriverConnection) -> None:
    """Close the socket at once: no goodbye on a connection that may be dead."""
    connection._force_close()  # type: ignore[attr-defined]  # noqa: SLF001


def _tls_arguments(dsn: Dsn) -> dict[str, Any]:
    if dsn.tls_mode == "off":
        return {"ssl_disabled": True}
    context = ssl.create_default_context(cafile=dsn.tls_ca)
    if dsn.tls_mode == "on":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return {"ssl": context}
