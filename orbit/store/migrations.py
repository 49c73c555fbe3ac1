"""Drives the migrations through alembic's Python API: one run at a time, forward only, tables and nothing else."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

import orbit
from orbit.store.connection import connect
from orbit.store.driver import DriverConnection
from orbit.store.dsn import Dsn
from orbit.store.schema import KNOWN_HEAD, SchemaMismatch, is_newer, newer_message, read_revision
from orbit.store.transaction import Tx

LOCK_WAIT_SECONDS = 60
# A table definition may be rebuilt row by row, and may have to wait for a reader of the old one.
STATEMENT_SECONDS = 24 * 3600.0
TABLE_LOCK_SECONDS = 60

Say = Callable[[str], None]


def silent(_line: str) -> None:
    """Say nothing about progress."""


class MigrationsBusy(Exception):
    """Another process is migrating this database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One migration: its id and what it is for."""

    revision: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Where a database stands: `current` is None without a schema; `pending` in the order of application."""

    current: str | None
    head: str
    pending: tuple[Step, ...]


def current_revision(dsn: Dsn) -> str | None:
    """Return the id of the newest applied migration, None for a database without a schema."""
    with _connected(dsn) as connection:
        return read_revision(Tx(connection))


def read_status(dsn: Dsn) -> Status:
    """Return what is applied and what is left.

    Raises:
        SchemaMismatch: the database is newer than this release.
    """
    current = current_revision(dsn)
    return Status(current=current, head=KNOWN_HEAD, pending=_pending(current))


def upgrade(dsn: Dsn, *, say: Say = silent) -> tuple[Step, ...]:
    """Apply what is missing and return it; repeat freely, also after a run that was killed at any point.

    Raises:
        SchemaMismatch: the database is newer than this release.
        MigrationsBusy: another run holds the lock for longer than a minute.
        pymysql.err.MySQLError: the database can't be reached or refuses.
    """
    with _connected(dsn) as connection, _alone(connection, dsn):
        steps = _pending(read_revision(Tx(connection)))
        connection.commit()
        for step in steps:
            say(f"applying {step.revision}: {step.title}")
            config = _config()
            config.attributes["engine"] = _engine(connection)
            try:
                command.upgrade(config, step.revision)
            except DBAPIError as error:
                raise (error.orig or error) from None
        return steps


def render_sql(first: str | None = None) -> str:
    """Return the DDL from `first` (None: an empty database) to the newest migration, as SQL text."""
    config = _config()
    config.output_buffer = io.StringIO()
    command.upgrade(config, f"{first}:head" if first else "head", sql=True)
    return config.output_buffer.getvalue()


def migrations_directory() -> Path:
    """Return the directory of `env.py` and `versions`: inside the installed package, else beside it in a checkout."""
    package = Path(orbit.__file__).parent
    for candidate in (package / "migrations", package.parent / "migrations"):
        if (candidate / "env.py").is_file():
            return candidate
    raise FileNotFoundError(f"no migrations in {package} or beside it")


def newest_migration() -> str | None:
    """Return the id of the newest migration on disk."""
    return ScriptDirectory.from_config(_config()).get_current_head()


def _pending(current: str | None) -> tuple[Step, ...]:
    if current is not None and is_newer(current):
        raise SchemaMismatch(newer_message(current))
    scripts = ScriptDirectory.from_config(_config()).iterate_revisions(KNOWN_HEAD, current or "base")
    steps = [Step(revision=script.revision, title=script.doc or "") for script in scripts]
    return tuple(reversed(steps))


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(migrations_directory()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _engine(connection: DriverConnection) -> sqlalchemy.Engine:
    """Let SQLAlchemy use this one open connection, which holds the lock."""
    return sqlalchemy.create_engine("mysql+pymysql://", creator=lambda: connection, poolclass=StaticPool)


@contextmanager
def _connected(dsn: Dsn) -> Iterator[DriverConnection]:
    if not dsn.database:
        raise SchemaMismatch("the database address names no database; migrations create tables only")
    connection = connect(dsn, read_timeout=STATEMENT_SECONDS)
    try:
        Tx(connection).execute(
            "SET SESSION wait_timeout = 600, lock_wait_timeout = %s", (TABLE_LOCK_SECONDS,)
        )
        yield connection
    finally:
        connection.close()


@contextmanager
def _alone(connection: DriverConnection, dsn: Dsn) -> Iterator[None]:
    """Hold the server's named lock for this database. The server frees it when the connection ends, however it ends."""
    name = "orbit-migrate-" + hashlib.sha256(dsn.database.encode()).hexdigest()[:32]
    tx = Tx(connection)
    if tx.value("SELECT GET_LOCK(%s, %s)", (name, LOCK_WAIT_SECONDS)) != 1:
        raise MigrationsBusy("another orbit-migrate works on this database")
    try:
        yield
    finally:
        if connection.open:
            tx.value("SELECT RELEASE_LOCK(%s)", (name,))
