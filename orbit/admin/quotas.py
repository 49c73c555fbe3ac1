"""`orbit-admin quotas`: the limits of an application and how much of them is in use."""

from __future__ import annotations

from typing import Any

import click

from orbit.domain.limits import QUOTA_MAX
from orbit.kernel import operators
from orbit.runtime.console import answer, database_option, failures_reported, json_option, opened
from orbit.store.dsn import Dsn
from orbit.store.sql.provision import ApplicationListRow

_LIMIT = click.IntRange(1, QUOTA_MAX)

EPILOG = """
\b
Examples:
  orbit-admin quotas show --application shop
  orbit-admin quotas set --application shop --max-active 2000 --reason "more workers"
"""


@click.group(epilog=EPILOG)
def quotas() -> None:
    """Show or set how much one application may hold at a time, all its namespaces together."""


@quotas.command()
@click.option("--application", required=True)
@database_option
@json_option
def show(*, application: str, dsn: Dsn, as_json: bool) -> None:
    """Show limits and usage."""
    with failures_reported(as_json=as_json), opened(dsn) as session:
        row = session.run(lambda tx: operators.find_application(tx, application))
        answer(_data(row), _text(row), as_json=as_json)


@quotas.command(name="set")
@click.option("--application", required=True)
@click.option("--max-unfinished", type=_LIMIT, help="Unfinished tasks, those in review included.")
@click.option("--max-active", type=_LIMIT, help="Attempts that are leased or running.")
@click.option("--reason", default="", help="For the audit.")
@database_option
@json_option
def set_(
    *,
    application: str,
    max_unfinished: int | None,
    max_active: int | None,
    reason: str,
    dsn: Dsn,
    as_json: bool,
) -> None:
    """Set limits; what is already above a lower limit stays and runs to its end."""
    if max_unfinished is None and max_active is None:
        raise click.UsageError("give --max-unfinished, --max-active or both")
    with failures_reported(as_json=as_json), opened(dsn) as session:
        row = session.run(
            lambda tx: operators.set_quotas(
                tx, application, max_unfinished=max_unfinished, max_active=max_active, reason=reason
            )
        )
        answer(_data(row), _text(row), as_json=as_json)


def _data(row: ApplicationListRow) -> dict[str, Any]:
    return {
        "application": row.name,
        "max_unfinished": row.max_unfinished,
        "max_active": row.max_active,
        "unfinished": row.unfinished,
        "active": row.active,
    }


def _text(row: ApplicationListRow) -> str:
    return (
        f"{row.name}: unfinished tasks {row.unfinished} of {row.max_unfinished}, "
        f"active attempts {row.active} of {row.max_active}"
    )
