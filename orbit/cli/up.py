"""`orbit up`: everything on this machine, supervised, until Ctrl-C."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
import trio

from orbit.cli.local import (
    Local,
    child_environment,
    credentials_file,
    prepare,
    remove_data,
    running_database,
)
from orbit.cli.output import MergedLog
from orbit.cli.places import PortTaken, client_url, free_address
from orbit.cli.procfile import read_procfile
from orbit.cli.records import HomeBusy, Records, alone_in
from orbit.cli.run import run_until_signal, signals_raise
from orbit.cli.supervisor import Supervisor
from orbit.domain.errors import OrbitError
from orbit.localdb.errors import LocalDatabaseError
from orbit.runtime.settings import Settings, SettingsError, load_settings
from orbit.store.failures import DriverError, describe
from orbit.store.migrations import MigrationsBusy
from orbit.store.schema import SchemaMismatch

EPILOG = """
\b
Examples:
  orbit up
  orbit up --port 9000 --dispatch-port 9001
  orbit up --home /var/tmp/orbit --reset

Keeps its database under the home (default .orbit, or ORBIT_HOME) and finds the same data next time. With
ORBIT_MYSQL_DSN set it uses that database instead of a private one.
"""


@click.command(epilog=EPILOG)
@click.option(
    "--home", type=click.Path(file_okay=False, path_type=Path), help="Default: ORBIT_HOME, else .orbit."
)
@click.option("--port", type=click.IntRange(0, 65_535), help="HTTP port; 0 takes a free one. Default: 8080.")
@click.option("--dispatch-port", type=click.IntRange(0, 65_535), help="Port for workers. Default: 8081.")
@click.option("--reset", is_flag=True, help="Remove the private database with all its data first.")
@click.option("--json", "as_json", is_flag=True, help="Say that it is ready with one JSON document.")
def up(*, home: Path | None, port: int | None, dispatch_port: int | None, reset: bool, as_json: bool) -> None:
    """Run everything on this machine until Ctrl-C."""
    try:
        settings = _settings(home, port, dispatch_port)
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
    if reset and settings.mysql_dsn is not None:
        raise click.UsageError(
            "--reset removes a private database only, and ORBIT_MYSQL_DSN names another one"
        )
    try:
        with signals_raise(), alone_in(settings.home):
            _run(settings, reset=reset, as_json=as_json)
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
    except (HomeBusy, PortTaken, LocalDatabaseError, SchemaMismatch, MigrationsBusy) as error:
        _fail(str(error))
    except OrbitError as error:
        _fail(error.message)
    except DriverError as error:
        _fail(describe(error))
    except OSError as error:
        # A home that is no directory, read-only or full; the traceback would say no more.
        _fail(f"{error.filename or settings.home}: {error.strerror or error}")


def _run(settings: Settings, *, reset: bool, as_json: bool) -> None:
    specs = read_procfile()
    log = MergedLog(sys.stderr, [spec.name for spec in specs])
    records = Records(settings.home)
    for name in records.end_leftovers():
        log.say(f"ended {name}, left over from an orbit up that was killed")
    http = free_address(settings.http_addr, option="--port", variable="ORBIT_HTTP_ADDR")
    dispatch = free_address(settings.dispatch_addr, option="--dispatch-port", variable="ORBIT_DISPATCH_ADDR")
    if reset:
        log.say(f"removing the database in {settings.home}")
        remove_data(settings.home)
    with running_database(settings.home, settings.mysql_dsn, log.say) as dsn:
        credential = prepare(dsn, settings.home, log.say)
        is_tls = settings.tls_cert is not None
        local = Local(
            url=client_url("https" if is_tls else "http", http),
            worker_url=settings.dispatch_url or client_url("wss" if is_tls else "ws", dispatch),
            credentials_file=credentials_file(settings.home),
            token=credential.token,
        )
        supervisor = Supervisor(specs, child_environment(dsn, http, dispatch), log, records)
        announce = partial(_announce, local, settings.home, as_json=as_json)
        trio.run(partial(run_until_signal, supervisor, local, on_ready=announce, say=log.say))
        log.say("stopped")


def _settings(home: Path | None, port: int | None, dispatch_port: int | None) -> Settings:
    settings = load_settings(os.environ)
    http, dispatch = settings.http_addr, settings.dispatch_addr
    return replace(
        settings,
        home=home or settings.home,
        http_addr=http if port is None else http.with_port(port),
        dispatch_addr=dispatch if dispatch_port is None else dispatch.with_port(dispatch_port),
    )


def _announce(local: Local, home: Path, *, as_json: bool) -> None:
    file = local.credentials_file
    # For the commands that speak to the API and are given no ORBIT_URL.
    (home / "up.json").write_text(
        json.dumps({"url": local.url, "worker_url": local.worker_url}), encoding="utf-8"
    )
    if as_json:
        ready = {"url": local.url, "worker_url": local.worker_url, "credentials_file": str(file)}
        print(json.dumps(ready), flush=True)
        return
    read = f"import json; print(json.load(open('{file}'))['token'])"
    print(
        f"""
Orbit is ready.
  API          {local.url}
  Workers      {local.worker_url}
  Credential   {file}
  Try          TOKEN=$(python3 -c "{read}")
               curl -H "Authorization: Bearer $TOKEN" {local.url}/v1/queues
Ctrl-C stops everything; the data stays.
""",
        flush=True,
    )


def _fail(message: str) -> None:
    click.echo(f"error: {message}", err=True)
    sys.exit(1)
