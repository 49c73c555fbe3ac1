"""Where a database's tables differ from the tables that this release is written for."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sqlalchemy import Table
from sqlalchemy.dialects import mysql
from sqlalchemy.schema import CreateIndex, CreateTable

from orbit.store.connection import connect
from orbit.store.dsn import Dsn
from orbit.store.tables import metadata
from orbit.store.transaction import Tx

VERSION_TABLE = "alembic_version"
_DIALECT = mysql.dialect(paramstyle="named")
# MySQL writes a character set before each literal of a check, and not always the same one for the same text.
_INTRODUCER = re.compile(r"_(?:ascii|utf8mb4)(?=')")


def find_drift(dsn: Dsn) -> list[str]:
    """Return one line for each difference between the database and the Core tables, none when they agree.

    The server itself renders both sides: a temporary table made from the Core table hides the real one in this
    session, and `SHOW CREATE TABLE` is compared, so types, nullability, defaults, generated columns, keys, checks,
    foreign keys, comments and options count as the server sees them. Nothing is left behind.
    """
    connection = connect(dsn)
    try:
        return list(_differences(Tx(connection)))
    finally:
        connection.close()


def _differences(tx: Tx) -> Iterator[str]:
    sql = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
    present = {row[0] for row in tx.rows(sql)}
    for name in sorted(present - set(metadata.tables) - {VERSION_TABLE}):
        yield f"{name}: table is in the database only"
    for table in metadata.sorted_tables:
        if table.name not in present:
            yield f"{table.name}: table is missing"
            continue
        real = _show(tx, table.name)
        wanted = _show_wanted(tx, table)
        yield from (f"{table.name}: {line}" for line in _compare(real, wanted))


def _show(tx: Tx, name: str) -> str:
    row = tx.row(f"SHOW CREATE TABLE `{name}`")
    assert row is not None
    return str(row[1]).replace("CREATE TEMPORARY TABLE", "CREATE TABLE", 1)


def _show_wanted(tx: Tx, table: Table) -> str:
    create = str(CreateTable(table).compile(dialect=_DIALECT)).strip()
    tx.execute(create.replace("CREATE TABLE", "CREATE TEMPORARY TABLE", 1))
    try:
        for index in table.indexes:
            tx.execute(str(CreateIndex(index).compile(dialect=_DIALECT)))
        return _show(tx, table.name)
    finally:
        tx.execute(f"DROP TEMPORARY TABLE `{table.name}`")


def _compare(real: str, wanted: str) -> Iterator[str]:
    """Compare line by line; the order of columns counts, that of keys and checks does not."""
    there, here = _lines(real), _lines(wanted)
    for line in there:
        if line not in here:
            yield f"only in the database: {line}"
    for line in here:
        if line not in there:
            yield f"missing in the database: {line}"
    if sorted(there) == sorted(here) and _columns(there) != _columns(here):
        yield "the columns are in another order"


def _lines(text: str) -> list[str]:
    return [_INTRODUCER.sub("", line.strip().removesuffix(",")) for line in text.splitlines()]


def _columns(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("`")]
