"""`orbit-admin credentials`: create, list, rotate, revoke. Secrets go into operation files, nowhere else."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

from orbit.domain.errors import InvalidArgument, StateConflict
from orbit.domain.ids import id_text, new_id, parse_id
from orbit.domain.permissions import ACTIONS
from orbit.domain.tokens import make_token, new_secret
from orbit.domain.wire import format_time, parse_time
from orbit.kernel import operators
from orbit.runtime.console import answer, database_option, failures_reported, json_option, opened
from orbit.runtime.operation_file import read_operation_file, write_operation_file
from orbit.store.dsn import Dsn
from orbit.store.sql.provision import NewCredential

EPILOG = """
\b
Examples:
  orbit-admin credentials create --application shop --namespace orders \\
      --action tasks:submit --action tasks:read --queue default --output submit.json
  orbit-admin credentials list --application shop
  orbit-admin credentials rotate 018f2c6e9d0b7a3c5e1f20a4b6c8d0e2 --output rotated.json
  orbit-admin credentials revoke 018f2c6e9d0b7a3c5e1f20a4b6c8d0e2 --reason "left the team"

After an unknown outcome repeat the same command with the same file: the file is replayed, no new secret is made.
"""
_OUTPUT = click.Path(dir_okay=False, path_type=Path)


class CredentialFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `create` and `rotate` keep: the operation, its secret, and the expiry it fixes (`null`: none)."""

    operation_id: str
    credential_id: str
    token: str
    expires_at: str | None = None


@click.group(epilog=EPILOG)
def credentials() -> None:
    """Create, list, rotate and revoke credentials."""


@credentials.command()
@click.option("--application", required=True)
@click.option("--namespace", required=True)
@click.option("--action", "actions", multiple=True, required=True, type=click.Choice(sorted(ACTIONS)))
@click.option("--queue", "queues", multiple=True, help="Limit it to these queues (default: all).")
@click.option("--expires-in-days", type=click.IntRange(1, 3650), help="Default: it doesn't expire.")
@click.option("--output", required=True, type=_OUTPUT)
@database_option
@json_option
def create(
    *,
    application: str,
    namespace: str,
    actions: tuple[str, ...],
    queues: tuple[str, ...],
    expires_in_days: int | None,
    output: Path,
    dsn: Dsn,
    as_json: bool,
) -> None:
    """Make a credential with exactly these actions."""
    with failures_reported(as_json=as_json), opened(dsn) as session:
        file = _load_or_save(output, credential_id=None, expires_at=None)
        command = operators.CreateCredential(
            operation_id=parse_id(file.operation_id, "operation_id"),
            application=application,
            namespace=namespace,
            token=file.token,
            actions=frozenset(actions),
            queues=queues or None,
            expires_in_days=expires_in_days,
        )
        made = session.run(lambda tx: operators.create_credential(tx, command))
        _report(file, output, "made" if made else "found", as_json=as_json)


@credentials.command()
@click.argument("credential_id")
@click.option("--expires-in-days", type=click.IntRange(1, 3650), help="Default: it doesn't expire.")
@click.option("--output", required=True, type=_OUTPUT)
@database_option
@json_option
def rotate(*, credential_id: str, expires_in_days: int | None, output: Path, dsn: Dsn, as_json: bool) -> None:
    """Replace a credential's token; its id and everything bound to it stay, the old token is refused at once."""
    with failures_reported(as_json=as_json), opened(dsn) as session:
        now = session.run(lambda tx: tx.now)
        expires_at = None if expires_in_days is None else format_time(now + timedelta(days=expires_in_days))
        file = _load_or_save(
            output, credential_id=parse_id(credential_id, "credential_id"), expires_at=expires_at
        )
        if file.credential_id != credential_id:
            raise StateConflict(f"{output} is the file of another credential")
        command = operators.RotateCredential(
            operation_id=parse_id(file.operation_id, "operation_id"),
            token=file.token,
            expires_at=None if file.expires_at is None else parse_time(file.expires_at, "expires_at"),
        )
        done = session.run(lambda tx: operators.rotate_credential(tx, command))
        _report(file, output, "rotated" if done else "was rotated before:", as_json=as_json)


@credentials.command(name="list")
@click.option("--application", required=True)
@database_option
@json_option
def list_(*, application: str, dsn: Dsn, as_json: bool) -> None:
    """List an application's credentials, without their secrets."""
    with failures_reported(as_json=as_json), opened(dsn) as session:
        rows = session.run(lambda tx: operators.list_credentials(tx, application))
        data = [_data(namespace, row) for namespace, row in rows]
        lines = [
            f"{item['id']}  {item['state']:7}  {item['namespace']}  {' '.join(item['actions'])}"
            for item in data
        ]
        answer({"credentials": data}, "\n".join(lines) or "no credentials", as_json=as_json)


@credentials.command()
@click.argument("credential_id")
@click.option("--reason", default="", help="For the audit.")
@database_option
@json_option
def revoke(*, credential_id: str, reason: str, dsn: Dsn, as_json: bool) -> None:
    """Refuse a credential from now on, for good; deletes nothing."""
    with failures_reported(as_json=as_json), opened(dsn) as session:
        wanted = parse_id(credential_id, "credential_id")
        changed = session.run(lambda tx: operators.revoke_credential(tx, wanted, reason=reason))
        text = f"{credential_id} is revoked" + ("" if changed else " already")
        answer({"id": credential_id, "state": "REVOKED", "changed": changed}, text, as_json=as_json)


def _load_or_save(path: Path, *, credential_id: bytes | None, expires_at: str | None) -> CredentialFile:
    """Return the operation of the file; make the file first where there is none."""
    saved = read_operation_file(path, CredentialFile)
    if saved is not None:
        return saved
    fresh_id, token, _ = make_token()
    if credential_id is not None:
        fresh_id, token = credential_id, new_secret(credential_id)
    file = CredentialFile(
        operation_id=id_text(new_id()), credential_id=id_text(fresh_id), token=token, expires_at=expires_at
    )
    try:
        write_operation_file(path, file)
    except FileExistsError:
        raise InvalidArgument("another command has just made this file; repeat", field="output") from None
    return file


def _report(file: CredentialFile, output: Path, verb: str, *, as_json: bool) -> None:
    data = {"operation_id": file.operation_id, "credential_id": file.credential_id, "output": str(output)}
    answer(data, f"{verb} credential {file.credential_id}, see {output}", as_json=as_json)


def _data(namespace: str, row: NewCredential) -> dict[str, Any]:
    return {
        "id": id_text(row.credential_id),
        "namespace": namespace,
        "state": row.state,
        "actions": row.actions.split(),
        "all_queues": bool(row.all_queues),
        "expires_at": None if row.expires_at is None else format_time(row.expires_at),
        "created_at": format_time(row.created_at),
    }
