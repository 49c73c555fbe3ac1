"""`orbit demo`: a private Orbit from nothing, one real job on it, its verdict, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import click
import trio

from orbit.cli.local import (
    Local,
    NotReady,
    child_environment,
    credentials_file,
    prepare,
    running_database,
)
from orbit.cli.output import MergedLog
from orbit.cli.places import client_url, free_address
from orbit.cli.procfile import PACKAGE, read_procfile
from orbit.cli.records import Records
from orbit.cli.run import run_for, signals_raise
from orbit.cli.supervisor import Supervisor, tethered
from orbit.localdb.errors import LocalDatabaseError
from orbit.localdb.process import Lifetime
from orbit.runtime.setting_values import Address

EXAMPLE = PACKAGE.parent / "examples" / "keyed-concurrency" / "main.py"
EXAMPLE_SECONDS = 90.0
LOG_TAIL_LINES = 60
ANY_PORT = Address(host="127.0.0.1", port=0)

EPILOG = """
\b
Examples:
  orbit demo
  orbit demo --verbose

Two queues, one resource key, two workers: the platform lets one task at a time have the key and gives each a higher
fencing token; the resource refuses the write of an old one.
"""


@click.command(epilog=EPILOG)
@click.option("--verbose", is_flag=True, help="Show the logs of all processes.")
def demo(*, verbose: bool) -> None:
    """Run the keyed-concurrency example on a private, temporary Orbit."""
    if not EXAMPLE.is_file():
        raise click.ClickException("the examples are part of the source tree; run this from a checkout")
    with signals_raise():
        home = Path(tempfile.mkdtemp(prefix="orbit-demo-"))
        try:
            code = _run(home, verbose=verbose)
        except KeyboardInterrupt:
            code = 1
        except LocalDatabaseError as error:
            click.echo(f"error: {error}", err=True)
            code = 1
        finally:
            shutil.rmtree(home, ignore_errors=True)
    sys.exit(code)


def _run(home: Path, *, verbose: bool) -> int:
    specs = read_procfile()
    log_path = home / "demo.log"
    with log_path.open("w", encoding="utf-8") as file:
        log = MergedLog(sys.stderr if verbose else file, [spec.name for spec in specs])
        http = free_address(ANY_PORT, option="", variable="")
        dispatch = free_address(ANY_PORT, option="", variable="")
        with running_database(home, None, _say, lifetime=Lifetime.TEMPORARY) as dsn:
            credential = prepare(dsn, home, log.say)
            local = Local(
                url=client_url("http", http),
                worker_url=client_url("ws", dispatch),
                credentials_file=credentials_file(home),
                token=credential.token,
            )
            _say("starting " + ", ".join(spec.name for spec in specs))
            supervisor = Supervisor(specs, child_environment(dsn, http, dispatch), log, Records(home))
            try:
                code = trio.run(run_for, supervisor, local, partial(_run_example, local))
            except NotReady as error:
                click.echo(f"error: {error}", err=True)
                code = 1
    if code != 0 and not verbose:
        click.echo("\n".join(log_path.read_text(encoding="utf-8").splitlines()[-LOG_TAIL_LINES:]), err=True)
    return code


async def _run_example(local: Local) -> int:
    """Run the example with its output passed through; return its exit code."""
    _say("running the keyed-concurrency example")
    example = subprocess.Popen(  # noqa: ASYNC220 - starting takes milliseconds; the wait is in a thread
        tethered([sys.executable, str(EXAMPLE)]),
        env={**os.environ, "ORBIT_URL": local.url, "ORBIT_CREDENTIALS_FILE": str(local.credentials_file)},
        stdin=subprocess.DEVNULL,
    )
    try:
        with trio.fail_after(EXAMPLE_SECONDS):
            return await trio.to_thread.run_sync(example.wait, abandon_on_cancel=True)
    except trio.TooSlowError:
        click.echo(f"error: the example didn't end within {EXAMPLE_SECONDS:g} s", err=True)
        return 1
    finally:
        example.kill()
        example.wait()


def _say(text: str) -> None:
    click.echo(f"orbit: {text}", err=True)
