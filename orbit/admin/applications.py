"""`orbit-admin applications`: list, disable, enable."""

from __future__ import annotations

import click

from orbit.domain.ids import id_text
from orbit.domain.wire import format_time
from orbit.kernel import operators
from orbit.runtime.console import answer, database_option, failures_reported, json_option, opened
from orbit.store.dsn import Dsn
from orbit.store.sql.provision import select_applications

EPILOG = """
\b
Examples:
  orbit-admin applications list --json
  orbit-admin applications disable shop --reason "contract ended"
"""


@click.group(epilog=EPILOG)
def applications() -> None:
    """List applications, or switch one off and on."""


@applications.command(name="list")
@database_option
@json_option
def list_(*, dsn: Dsn, as_json: bool) -> None:
    """List all applications."""
    with failures_reported(as_json=as_json), opened(dsn) as session:
        rows = session.run(select_applications)
        data = [
            {
                "id": id_text(row.application_id),
                "name": row.name,
                "state": row.state,
                "created_at": format_time(row.created_at),
            }
            for row in rows
        ]
        text = "\n".join(f"{id_text(row.application_id)}  {row.state:8}  {row.name}" for row in rows)
        answer({"applications": data}, text or "no applications", as_json=as_json)


@applications.command()
@click.argument("name")
@click.option("--reason", default="", help="For the audit.")
@database_option
@json_option
def disable(*, name: str, reason: str, dsn: Dsn, as_json: bool) -> None:
    """Refuse every credential of the application from now on; its data stays."""
    _switch(name, reason, dsn, enabled=False, as_json=as_json)


@applications.command()
@click.argument("name")
@click.option("--reason", default="", help="For the audit.")
@database_option
@json_option
def enable(*, name: str, reason: str, dsn: Dsn, as_json: bool) -> None:
    """Accept the application's credentials again."""
    _switch(name, reason, dsn, enabled=True, as_json=as_json)


def _switch(name: str, reason: str, dsn: Dsn, *, enabled: bool, as_json: bool) -> None:
    with failures_reported(as_json=as_json), opened(dsn) as session:
        changed = session.run(
            lambda tx: operators.set_application_state(tx, name, enabled=enabled, reason=reason)
        )
        state = "ACTIVE" if enabled else "DISABLED"
        text = f"{name} is {state}" + ("" if changed else " already")
        answer({"application": name, "state": state, "changed": changed}, text, as_json=as_json)
