"""Credentials, applications and quotas as an operator changes them: at once, audited, repeatable."""

from __future__ import annotations

import json
import secrets
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from orbit.admin.main import main
from orbit.domain.errors import NotFound, StateConflict, Unauthenticated
from orbit.domain.ids import new_id
from orbit.domain.permissions import BOOTSTRAP_ACTIONS
from orbit.domain.tokens import new_secret, parse_token
from orbit.kernel import operators
from orbit.kernel.caller import Token
from orbit.kernel.identity import read_caller
from orbit.kernel.provision import Bootstrap
from orbit.runtime.bootstrap import BootstrapFile, run_bootstrap
from orbit.store.dsn import Dsn
from orbit.store.session import Session


@pytest.fixture
def name() -> str:
    return f"ops-{secrets.token_hex(6)}"


@pytest.fixture
def made(session: Session, name: str, tmp_path: Path) -> BootstrapFile:
    """A bootstrapped application."""
    command = Bootstrap(
        application=name, namespace="n", environment="e", queue="q", actions=BOOTSTRAP_ACTIONS
    )
    return run_bootstrap(session, command, tmp_path / "first.json")[0]


def token_of(text: str) -> Token:
    parsed = parse_token(text)
    assert parsed is not None
    return Token(credential_id=parsed[0], digest=parsed[1])


def test_rotation_swaps_the_secret_once(session: Session, made: BootstrapFile) -> None:
    """The id stays, the old token ends with the commit, replaying the operation changes nothing more."""
    credential_id = bytes.fromhex(made.credential_id)
    command = operators.RotateCredential(
        operation_id=new_id(), token=new_secret(credential_id), expires_at=None
    )
    assert session.run(lambda tx: operators.rotate_credential(tx, command)) is True
    assert session.run(lambda tx: operators.rotate_credential(tx, command)) is False
    with pytest.raises(Unauthenticated):
        session.run(lambda tx: read_caller(tx, token_of(made.token)))
    assert session.run(lambda tx: read_caller(tx, token_of(command.token))).credential_id == credential_id


def test_a_replayed_rotation_never_undoes_a_later_one(session: Session, made: BootstrapFile) -> None:
    """An old file found and applied again doesn't bring its secret back."""
    credential_id = bytes.fromhex(made.credential_id)
    first, second = (
        operators.RotateCredential(operation_id=new_id(), token=new_secret(credential_id), expires_at=None)
        for _ in range(2)
    )
    for command in (first, second, first):
        session.run(lambda tx, command=command: operators.rotate_credential(tx, command))
    assert session.run(lambda tx: read_caller(tx, token_of(second.token)))
    with pytest.raises(Unauthenticated):
        session.run(lambda tx: read_caller(tx, token_of(first.token)))


def test_rotation_stores_the_expiry_of_the_file(session: Session, made: BootstrapFile) -> None:
    """The new token is refused from its expiry on."""
    credential_id = bytes.fromhex(made.credential_id)
    ends = session.run(lambda tx: tx.now) + timedelta(days=1)
    command = operators.RotateCredential(
        operation_id=new_id(), token=new_secret(credential_id), expires_at=ends
    )
    session.run(lambda tx: operators.rotate_credential(tx, command))
    sql = "SELECT expires_at FROM credentials WHERE credential_id = %s"
    assert session.run(lambda tx: tx.value(sql, (credential_id,))) == ends


def test_revocation_is_final_and_works_in_a_disabled_application(
    session: Session, name: str, made: BootstrapFile
) -> None:
    """A revoked credential can't be rotated back to life; its row stays."""
    credential_id = bytes.fromhex(made.credential_id)
    session.run(lambda tx: operators.set_application_state(tx, name, enabled=False, reason=""))
    assert session.run(lambda tx: operators.revoke_credential(tx, credential_id, reason="gone")) is True
    assert session.run(lambda tx: operators.revoke_credential(tx, credential_id, reason="gone")) is False
    session.run(lambda tx: operators.set_application_state(tx, name, enabled=True, reason=""))
    with pytest.raises(Unauthenticated):
        session.run(lambda tx: read_caller(tx, token_of(made.token)))
    command = operators.RotateCredential(
        operation_id=new_id(), token=new_secret(credential_id), expires_at=None
    )
    with pytest.raises(StateConflict, match="revoked"):
        session.run(lambda tx: operators.rotate_credential(tx, command))
    listed = session.run(lambda tx: operators.list_credentials(tx, name))
    assert [row.state for _, row in listed] == ["REVOKED"]


def test_a_disabled_application_is_refused_until_enabled(
    session: Session, name: str, made: BootstrapFile
) -> None:
    """Disabling refuses every credential, enabling accepts them again."""
    token = token_of(made.token)
    assert (
        session.run(lambda tx: operators.set_application_state(tx, name, enabled=False, reason="x")) is True
    )
    assert (
        session.run(lambda tx: operators.set_application_state(tx, name, enabled=False, reason="x")) is False
    )
    with pytest.raises(Unauthenticated):
        session.run(lambda tx: read_caller(tx, token))
    session.run(lambda tx: operators.set_application_state(tx, name, enabled=True, reason="x"))
    assert session.run(lambda tx: read_caller(tx, token))


def test_quotas_change_limits_and_never_usage(session: Session, name: str, made: BootstrapFile) -> None:
    """One limit may be set alone; the change is audited."""
    session.run(lambda tx: operators.set_quotas(tx, name, max_unfinished=7, max_active=None, reason="less"))
    row = session.run(lambda tx: operators.find_application(tx, name))
    assert (row.max_unfinished, row.max_active, row.unfinished, row.active) == (7, 100_000, 0, 0)
    sql = "SELECT reason FROM audits WHERE application_id = UNHEX(%s) AND action = 'admin:quotas'"
    assert session.run(lambda tx: tx.value(sql, (made.application_id,))) == "less"
    with pytest.raises(NotFound):
        session.run(lambda tx: operators.set_quotas(tx, "nobody", max_unfinished=1, max_active=1, reason=""))


def test_the_command_line_replays_files(dsn: Dsn, name: str, made: BootstrapFile, tmp_path: Path) -> None:
    """Repeating create and rotate with the same file makes no second secret; no secret is printed."""
    runner = CliRunner()
    base = ["--dsn", dsn.text(), "--json"]
    output = tmp_path / "second.json"
    create = ["credentials", "create", "--application", name, "--namespace", "n", "--action", "tasks:read"]
    create += ["--queue", "q", "--output", str(output), *base]
    first = runner.invoke(main, create)
    assert first.exit_code == 0, first.output
    written = output.read_bytes()
    again = runner.invoke(main, create)
    assert again.output == first.output
    assert output.read_bytes() == written
    file = json.loads(written)
    assert file["token"] not in first.output
    rotate = ["credentials", "rotate", file["credential_id"], "--output", str(tmp_path / "third.json"), *base]
    assert [runner.invoke(main, rotate).exit_code for _ in range(2)] == [0, 0]
    listed = runner.invoke(main, ["credentials", "list", "--application", name, *base])
    found = {row["id"]: row for row in json.loads(listed.output)["credentials"]}
    assert found[file["credential_id"]]["all_queues"] is False
    assert found[file["credential_id"]]["actions"] == ["tasks:read"]
    wrong = runner.invoke(main, ["credentials", "revoke", "0" * 32, *base])
    assert (wrong.exit_code, json.loads(wrong.output)["error"]["code"]) == (1, "NOT_FOUND")
