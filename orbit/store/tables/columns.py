"""Column kinds shared by every table, so that one kind of value has one type everywhere."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BINARY, VARBINARY, Column, Computed, MetaData
from sqlalchemy.dialects.mysql import BIGINT, BOOLEAN, DATETIME, INTEGER, TEXT, TINYINT, VARCHAR

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

# State a table's charset and engine on each table: servers differ in their defaults.
TABLE_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
    "mysql_row_format": "DYNAMIC",
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_bin",
    "mariadb_row_format": "DYNAMIC",
}


def identity(name: str, comment: str, *, null: bool = False, key: bool = False) -> Column[Any]:
    """A 128-bit id."""
    return Column(name, BINARY(16), nullable=null, primary_key=key, comment=comment)


def digest(name: str, comment: str, *, size: int = 32, null: bool = False, key: bool = False) -> Column[Any]:
    """A hash that stands for exact bytes."""
    return Column(name, BINARY(size), nullable=null, primary_key=key, comment=comment)


def name(name: str, size: int, comment: str, *, null: bool = False) -> Column[Any]:
    """A word of the restricted ASCII alphabet: a state, a handler, a queue's name."""
    return Column(name, VARCHAR(size, charset="ascii", collation="ascii_bin"), nullable=null, comment=comment)


def exact(name: str, size: int, comment: str, *, null: bool = False) -> Column[Any]:
    """Bytes that must match exactly, whatever the collation."""
    return Column(name, VARBINARY(size), nullable=null, comment=comment)


def words(name: str, size: int, comment: str, *, null: bool = False) -> Column[Any]:
    """Text for people, never matched."""
    kind: Any = VARCHAR(size) if size <= 1024 else TEXT()
    return Column(name, kind, nullable=null, comment=comment)


def instant(name: str, comment: str, *, null: bool = False) -> Column[Any]:
    """A UTC time of the database with microseconds."""
    return Column(name, DATETIME(fsp=6), nullable=null, comment=comment)


def flag(name: str, comment: str) -> Column[Any]:
    return Column(name, BOOLEAN(), nullable=False, comment=comment)


def small(name: str, comment: str, *, null: bool = False, key: bool = False) -> Column[Any]:
    return Column(
        name, TINYINT(unsigned=True), nullable=null, primary_key=key, autoincrement=False, comment=comment
    )


def number(name: str, comment: str, *, null: bool = False) -> Column[Any]:
    return Column(name, INTEGER(unsigned=True), nullable=null, comment=comment)


def big(name: str, comment: str, *, null: bool = False, key: bool = False) -> Column[Any]:
    return Column(
        name, BIGINT(unsigned=True), nullable=null, primary_key=key, autoincrement=False, comment=comment
    )


def computed(column: Column[Any], expression: str) -> Column[Any]:
    """The same column as a stored generated one (`NOT NULL` can't be said on every server)."""
    return Column(column.name, column.type, Computed(expression, persisted=True), comment=column.comment)
