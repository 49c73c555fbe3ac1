"""`orbit-admin bootstrap`: the first application, namespace, queue and credential."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from orbit.domain.permissions import ACTIONS, BOOTSTRAP_ACTIONS, WORKER_ACTIONS, WORKFLOWS_PUBLISH
from orbit.kernel.provision import INITIAL_CONCURRENCY, INITIAL_RATE, Bootstrap
from orbit.runtime.bootstrap import run_bootstrap
from orbit.runtime.console import answer, database_option, failures_reported, json_option, opened
from orbit.store.dsn import Dsn

Command = TypeVar("Command", bound=Callable[..., Any])

# Every action that neither the plain set nor a group flag covers has a flag of its own: --tasks-review, …
SINGLE_ACTIONS = sorted(ACTIONS - BOOTSTRAP_ACTIONS - WORKER_ACTIONS - {WORKFLOWS_PUBLISH})

EPILOG = """
\b
Examples:
  orbit-admin bootstrap --application shop --namespace orders --environment prod \\
      --queue default --output shop.credentials.json
  orbit-admin bootstrap --application shop --namespace orders --environment prod \\
      --queue default --worker-access --tasks-review --output worker.credentials.json

The file (0600) is written before anything is committed and is never overwritten. Repeat the same command after
any failure: an existing file is replayed, existing names are found again.
"""


def single_actions(command: Command) -> Command:
    """Add a flag for each single action."""
    for action in reversed(SINGLE_ACTIONS):
        flag = "--" + action.replace(":", "-")
        command = click.option(flag, action.replace(":", "_"), is_flag=True, help=f"Also grant {action}.")(
            command
        )
    return command


@click.command(epilog=EPILOG)
@click.option("--application", required=True, help="Name of the application; made if it is missing.")
@click.option("--namespace", required=True, help="Name of its namespace; made if it is missing.")
@click.option("--environment", required=True, help="Label of the namespace, such as prod or test.")
@click.option("--queue", required=True, help="Name of its first queue; made if it is missing.")
@click.option(
    "--max-concurrency", type=click.IntRange(1, 100_000), default=INITIAL_CONCURRENCY, show_default=True
)
@click.option("--rate-per-second", type=click.IntRange(1, 1_000_000), default=INITIAL_RATE, show_default=True)
@click.option(
    "--worker-access", is_flag=True, help="Also grant workers:connect, workers:consume, workers:read."
)
@click.option(
    "--workflow-access", is_flag=True, help="Also grant workflows:publish, and nothing else of workflows."
)
@single_actions
@click.option(
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the credential goes.",
)
@database_option
@json_option
def bootstrap(
    *,
    application: str,
    namespace: str,
    environment: str,
    queue: str,
    max_concurrency: int,
    rate_per_second: int,
    worker_access: bool,
    workflow_access: bool,
    output: Path,
    dsn: Dsn,
    as_json: bool,
    **singles: bool,
) -> None:
    """Make an application with a namespace, a queue and a credential over all queues.

    The credential may read and manage queues and submit, read and cancel tasks; everything else is asked for by flag.
    """
    actions = set(BOOTSTRAP_ACTIONS)
    actions |= WORKER_ACTIONS if worker_access else set()
    actions |= {WORKFLOWS_PUBLISH} if workflow_access else set()
    actions |= {action for action in SINGLE_ACTIONS if singles[action.replace(":", "_")]}
    command = Bootstrap(
        application=application,
        namespace=namespace,
        environment=environment,
        queue=queue,
        actions=frozenset(actions),
        max_concurrency=max_concurrency,
        rate_per_second=rate_per_second,
    )
    with failures_reported(as_json=as_json), opened(dsn) as session:
        content, made = run_bootstrap(session, command, output)
        ids = {name: getattr(content, name) for name in content.__struct_fields__ if name != "token"}
        text = f"{'made' if made else 'found'} credential {content.credential_id}, see {output}"
        answer({**ids, "created": made, "output": str(output)}, text, as_json=as_json)
