"""`orbit-migrate`: brings a database's tables to what this release needs."""

from __future__ import annotations

import click

from orbit.runtime.console import answer, database_option, failures_reported, json_option
from orbit.store import migrations
from orbit.store.drift import find_drift
from orbit.store.dsn import Dsn
from orbit.store.migrations import current_revision, upgrade
from orbit.store.schema import KNOWN_HEAD

__all__ = ["KNOWN_HEAD", "current_revision", "main", "upgrade"]

EPILOG = """
\b
Examples:
  orbit-migrate up
  orbit-migrate status --json
  orbit-migrate check && echo "the tables are as they should be"
  orbit-migrate sql > schema.sql
"""


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Create and upgrade Orbit's tables.

    Goes forward only, creates nothing but tables, may be repeated at any time; one run at a time per database.
    """


@main.command()
@database_option
@json_option
def up(*, dsn: Dsn, as_json: bool) -> None:
    """Apply the migrations that are missing."""
    with failures_reported(as_json=as_json):
        done = upgrade(dsn, say=lambda line: click.echo(line, err=True))
        ids = [step.revision for step in done]
        text = f"at {KNOWN_HEAD}" + ("" if ids else ", nothing to do")
        answer({"applied": ids, "current": KNOWN_HEAD}, text, as_json=as_json)


@main.command()
@database_option
@json_option
def status(*, dsn: Dsn, as_json: bool) -> None:
    """Show what is applied and what is missing; exit code 1 while something is missing."""
    with failures_reported(as_json=as_json):
        found = migrations.read_status(dsn)
        pending = [{"id": step.revision, "title": step.title} for step in found.pending]
        lines = [f"current {found.current or '-'}, newest {found.head}"]
        lines += [f"missing {step.revision}: {step.title}" for step in found.pending]
        answer(
            {"current": found.current, "head": found.head, "pending": pending},
            "\n".join(lines),
            as_json=as_json,
        )
    raise SystemExit(1 if found.pending else 0)


@main.command()
@database_option
@json_option
def check(*, dsn: Dsn, as_json: bool) -> None:
    """Compare the database with the tables this release is written for; exit code 1 when they differ."""
    with failures_reported(as_json=as_json):
        migrations.read_status(dsn)
        drift = find_drift(dsn)
        answer({"drift": drift}, "\n".join(drift) or "no difference", as_json=as_json)
    raise SystemExit(1 if drift else 0)


@main.command()
@click.option("--from", "first", metavar="ID", help="Start after this migration instead of from nothing.")
def sql(*, first: str | None) -> None:
    """Print the DDL instead of running it; needs no database."""
    click.echo(migrations.render_sql(first))


if __name__ == "__main__":
    main()
