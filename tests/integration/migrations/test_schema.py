"""What the migrated schema promises: the tables as written, no foreign keys, a Chinese comment on everything."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from orbit.store.connection import connect
from orbit.store.drift import find_drift
from orbit.store.dsn import Dsn
from orbit.store.transaction import Row, Tx

CHINESE = re.compile(r"[\u4e00-\u9fff]")


@pytest.fixture
def tx(dsn: Dsn) -> Iterator[Tx]:
    """Reads on the session's migrated database."""
    with connect(dsn, autocommit=True) as connection:
        yield Tx(connection)


def test_the_database_is_what_the_tables_say(dsn: Dsn) -> None:
    """Types, nullability, defaults, generated columns, keys, checks and comments: no difference."""
    assert find_drift(dsn) == []


def test_there_are_no_foreign_keys(tx: Tx) -> None:
    """Relations are checked by the service in the same transaction, never by the server."""
    sql = """
        SELECT COUNT(*) FROM information_schema.table_constraints
        WHERE constraint_schema = DATABASE() AND constraint_type = 'FOREIGN KEY'
    """
    assert tx.value(sql) == 0


def test_every_table_says_in_chinese_what_it_is(tx: Tx) -> None:
    """A table's comment has at least four Chinese characters."""
    sql = "SELECT table_name, table_comment FROM information_schema.tables WHERE table_schema = DATABASE()"
    rows = tx.rows(sql)
    assert len(rows) > 20
    assert [name for name, comment in rows if len(CHINESE.findall(comment)) < 4] == []


def test_every_column_says_in_chinese_more_than_its_name(tx: Tx) -> None:
    """A column's comment has Chinese characters, and isn't just its name."""
    rows = _columns(tx)
    assert len(rows) > 150
    poor = [
        (table, column, comment)
        for table, column, comment, _, _ in rows
        if len(CHINESE.findall(comment)) < 2 or comment.strip().lower() in {column, column.replace("_", " ")}
    ]
    assert poor == []


def test_nullable_columns_say_what_null_means(tx: Tx) -> None:
    """The comment of a column that may be NULL mentions it; a generated column says that it is one."""
    silent = [
        (table, column)
        for table, column, comment, nullable, extra in _columns(tx)
        if nullable == "YES"
        and "NULL" not in comment
        and "生成列" not in comment
        and "GENERATED" not in extra
    ]
    assert silent == []


def test_every_table_has_a_primary_key_and_one_charset(tx: Tx) -> None:
    """Group Replication needs the first, exact matching the second."""
    sql = """
        SELECT t.table_name, t.engine, t.table_collation, COUNT(k.column_name)
        FROM information_schema.tables t
        LEFT JOIN information_schema.key_column_usage k
            ON k.table_schema = t.table_schema AND k.table_name = t.table_name AND k.constraint_name = 'PRIMARY'
        WHERE t.table_schema = DATABASE()
        GROUP BY t.table_name, t.engine, t.table_collation
    """
    odd = [row for row in tx.rows(sql) if row[1:3] != ("InnoDB", "utf8mb4_bin") or row[3] == 0]
    assert odd == []


def _columns(tx: Tx) -> list[Row]:
    sql = """
        SELECT table_name, column_name, column_comment, is_nullable, extra
        FROM information_schema.columns WHERE table_schema = DATABASE()
    """
    return list(tx.rows(sql))
