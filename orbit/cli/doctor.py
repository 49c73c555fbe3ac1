"""`orbit doctor`: looks at settings, database, schema and API, changes nothing, says what to do."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import click
import trio

from orbit.cli.local import database_home
from orbit.cli.places import server_url
from orbit.localdb.errors import LocalDatabaseError
from orbit.localdb.instance import find
from orbit.pulse.invariants import check_invariants, invariant_names
from orbit.runtime.console import answer, json_option
from orbit.runtime.settings import Settings, SettingsError, load_settings
from orbit.store.connection import READ_TIMEOUT_SECONDS
from orbit.store.dsn import Dsn
from orbit.store.failures import DriverError, describe
from orbit.store.schema import SchemaMismatch, require_schema
from orbit.store.server import read_server, unsupported
from orbit.store.session import Reader
from orbit.store.transaction import Tx
from orbit_sdk import APIError, Client, TransportError

# A check of one invariant reads every task: seconds at a million of them.
INVARIANT_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check: `state` is ok, warning or problem; `text` says what was found and, if need be, what to do."""

    check: str
    state: str
    text: str


@click.command(
    epilog="\b\nExamples:\n  orbit doctor\n  orbit doctor --invariants --json\n\nExit code 1 when there is a problem."
)
@click.option("--invariants", is_flag=True, help="Recount the books too; reads every task, harms nobody.")
@json_option
def doctor(*, invariants: bool, as_json: bool) -> None:
    """Check settings, database, schema and API."""
    findings = list(examine(invariants=invariants))
    lines = [f"{finding.state:8} {finding.check:10} {finding.text}" for finding in findings]
    data = [{"check": f.check, "state": f.state, "text": f.text} for f in findings]
    answer({"findings": data}, "\n".join(lines), as_json=as_json)
    sys.exit(1 if any(finding.state == "problem" for finding in findings) else 0)


def examine(*, invariants: bool = False) -> Iterator[Finding]:
    """Run every check that makes sense after the ones before it."""
    try:
        settings = load_settings(os.environ)
    except SettingsError as error:
        yield Finding(check="settings", state="problem", text=str(error))
        return
    yield from (Finding(check="settings", state="warning", text=text) for text in settings.warnings)
    if not settings.warnings:
        yield Finding(check="settings", state="ok", text="every ORBIT_ variable is known and valid")
    dsn = _database(settings)
    if isinstance(dsn, Finding):
        yield dsn
    else:
        yield from examine_database(dsn, invariants=invariants)
    yield examine_api(server_url(os.environ))


def examine_database(dsn: Dsn, *, invariants: bool = False) -> Iterator[Finding]:
    """Check that the database answers, is of a supported version, has this release's schema, and sound books."""
    reader = Reader(dsn, read_timeout=INVARIANT_SECONDS if invariants else READ_TIMEOUT_SECONDS)
    try:
        yield reader.run(_check_server)
        schema = reader.run(_check_schema)
        yield schema
        if invariants and schema.state == "ok":
            yield from reader.run(_check_invariants)
    except DriverError as error:
        yield Finding(check="database", state="problem", text=f"{dsn.redacted()}: {describe(error)}")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        cause = error.__cause__
        text = describe(cause) if isinstance(cause, DriverError) else str(error)
        yield Finding(check="database", state="problem", text=f"{dsn.redacted()}: {text}")
    finally:
        reader.close()


def examine_api(url: str) -> Finding:
    """Check that the API serves."""
    try:
        trio.run(_check_ready, url)
    except TransportError as error:
        text = f"{url} doesn't answer ({error}); start `orbit up`, or set ORBIT_URL"
        return Finding(check="api", state="warning", text=text)
    except APIError as error:
        text = f"{url}/readyz answers {error.status}; see the log of orbit-api"
        return Finding(check="api", state="problem", text=text)
    except ValueError as error:
        return Finding(check="api", state="problem", text=f"ORBIT_URL: {error}")
    return Finding(check="api", state="ok", text=f"{url} is ready")


async def _check_ready(url: str) -> None:
    async with Client(url) as client:
        await client.check_ready()


def _database(settings: Settings) -> Dsn | Finding:
    if settings.mysql_dsn is not None:
        return settings.mysql_dsn
    try:
        instance = find(database_home(settings.home))
    except LocalDatabaseError:
        text = f"no ORBIT_MYSQL_DSN, and no database in {settings.home}: `orbit up` makes one"
        return Finding(check="database", state="warning", text=text)
    if not instance.is_running:
        text = f"the private database in {settings.home} is stopped: `orbit up` starts it"
        return Finding(check="database", state="warning", text=text)
    return instance.dsn()


def _check_server(tx: Tx) -> Finding:
    server = read_server(tx)
    problem = unsupported(server)
    return Finding(
        check="database", state="problem" if problem else "ok", text=problem or f"{server} answers"
    )


def _check_schema(tx: Tx) -> Finding:
    try:
        require_schema(tx)
    except SchemaMismatch as error:
        return Finding(check="schema", state="problem", text=str(error))
    return Finding(check="schema", state="ok", text="the schema is the one of this release")


def _check_invariants(tx: Tx) -> list[Finding]:
    broken = [
        Finding(check="invariants", state="problem", text=str(violation))
        for violation in check_invariants(tx)
    ]
    fine = f"all {len(invariant_names())} invariants hold"
    return broken or [Finding(check="invariants", state="ok", text=fine)]
