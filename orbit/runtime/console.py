"""What command lines share: the database option, answers as text or JSON, one clear line for a failure.

Exit codes: 0 done · 1 refused or failed · 2 wrong usage.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from orbit.domain.errors import OrbitError
from orbit.store.dsn import Dsn, parse_dsn
from orbit.store.failures import DriverError, describe
from orbit.store.migrations import MigrationsBusy
from orbit.store.schema import SchemaMismatch, require_schema
from orbit.store.session import Session

Command = TypeVar("Command", bound=Callable[..., Any])


class DsnType(click.ParamType[Dsn]):
    """A database address; a malformed one is wrong usage."""

    name = "dsn"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Dsn:
        if isinstance(value, Dsn):
            return value
        try:
            return parse_dsn(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def database_option(command: Command) -> Command:
    """Add `--dsn`, by default the environment's ORBIT_MYSQL_DSN."""
    return click.option(
        "--dsn",
        type=DsnType(),
        envvar="ORBIT_MYSQL_DSN",
        required=True,
        help="Database address, mysql://user:password@host:port/database (default: $ORBIT_MYSQL_DSN).",
    )(command)


def json_option(command: Command) -> Command:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Answer with one JSON document.")(command)


def answer(data: Any, text: str, *, as_json: bool) -> None:
    """Print the result of a command."""
    click.echo(json.dumps(data, ensure_ascii=False) if as_json else text)


@contextmanager
def failures_reported(*, as_json: bool) -> Iterator[None]:
    """Turn a failure that an operator can act on into one line (or one JSON document) and exit code 1."""
    try:
        yield
    except OrbitError as error:
        fail(error.code, error.message, as_json=as_json)
    except SchemaMismatch as error:
        fail("SCHEMA_MISMATCH", str(error), as_json=as_json)
    except MigrationsBusy as error:
        fail("BUSY", str(error), as_json=as_json)
    except DriverError as error:
        fail("DATABASE", describe(error), as_json=as_json)


def fail(code: str, message: str, *, as_json: bool) -> None:
    """Report a failure and end the command."""
    if as_json:
        click.echo(json.dumps({"error": {"code": code, "message": message}}, ensure_ascii=False))
    else:
        click.echo(f"error: {message}", err=True)
    sys.exit(1)


@contextmanager
def opened(dsn: Dsn) -> Iterator[Session]:
    """Open a session on a database that has the schema of this release.

    Raises:
        SchemaMismatch: it has another one, or none.
    """
    session = Session(dsn)
    try:
        session.run(require_schema)
        yield session
    finally:
        session.close()
