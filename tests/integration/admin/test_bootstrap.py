"""`orbit-admin bootstrap`: every combination of file and rows, before, during and after the commit."""

from __future__ import annotations

import json
import os
import secrets
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orbit.domain.errors import InvalidArgument, StateConflict
from orbit.domain.permissions import ACTIONS, BOOTSTRAP_ACTIONS, WORKER_ACTIONS
from orbit.domain.tokens import parse_token
from orbit.kernel.caller import Token
from orbit.kernel.identity import read_caller
from orbit.kernel.provision import Bootstrap
from orbit.runtime import bootstrap as runner
from orbit.runtime.bootstrap import BootstrapFile, run_bootstrap
from orbit.store.dsn import Dsn
from orbit.store.session import Session
from orbit.store.transaction import Tx

ROOT = Path(__file__).resolve().parents[3]
KEYS = {"operation_id", "credential_id", "token", "application_id", "namespace_id", "queue_id"}


@pytest.fixture
def command() -> Bootstrap:
    """Names that no other test uses."""
    return Bootstrap(
        application=f"shop-{secrets.token_hex(6)}",
        namespace="orders",
        environment="test",
        queue="default",
        actions=BOOTSTRAP_ACTIONS | WORKER_ACTIONS,
    )


def counted(tx: Tx, application: str) -> dict[str, int]:
    """Rows that one bootstrap makes, by table."""
    application_id = tx.value("SELECT application_id FROM applications WHERE name = %s", (application,))
    tables = ("application_quotas", "namespaces", "queues", "credentials", "audits")
    count = "SELECT COUNT(*) FROM {} WHERE application_id = %s"
    found = {table: int(tx.value(count.format(table), (application_id,))) for table in tables}
    joined = "SELECT COUNT(*) FROM {} JOIN {} USING ({}) WHERE application_id = %s"
    found["streams"] = tx.value(
        joined.format("namespace_streams", "namespaces", "namespace_id"), (application_id,)
    )
    found["usage"] = tx.value(joined.format("queue_usage", "queues", "queue_id"), (application_id,))
    found["events"] = tx.value(
        "SELECT COUNT(*) FROM state_events JOIN queues ON queue_id = resource_id WHERE application_id = %s",
        (application_id,),
    )
    return found


def test_no_file_no_rows(session: Session, command: Bootstrap, tmp_path: Path) -> None:
    """Everything is made once; the file (0600) holds a token that opens what was granted, and nothing else."""
    path = tmp_path / "c.json"
    content, made = run_bootstrap(session, command, path)
    assert made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    data = json.loads(path.read_text())
    assert set(data) == KEYS
    assert data == {name: getattr(content, name) for name in KEYS}
    assert set(session.run(lambda tx: counted(tx, command.application)).values()) == {1}
    parsed = parse_token(content.token)
    assert parsed is not None
    caller = session.run(lambda tx: read_caller(tx, Token(credential_id=parsed[0], digest=parsed[1])))
    assert caller.actions == command.actions
    assert caller.scope.is_all
    assert caller.namespace_id.hex() == content.namespace_id
    assert list(tmp_path.iterdir()) == [path]


def test_file_and_rows(session: Session, command: Bootstrap, tmp_path: Path) -> None:
    """The second call changes nothing, neither rows nor the file."""
    path = tmp_path / "c.json"
    first, _ = run_bootstrap(session, command, path)
    before, written = session.run(lambda tx: counted(tx, command.application)), path.read_bytes()
    second, made = run_bootstrap(session, command, path)
    assert (second, made) == (first, False)
    assert session.run(lambda tx: counted(tx, command.application)) == before
    assert path.read_bytes() == written


def test_file_but_no_rows(session: Session, command: Bootstrap, tmp_path: Path) -> None:
    """A file whose commit never came is replayed: the same ids and the same token."""
    path = tmp_path / "c.json"

    class Stop(Exception):
        pass

    def save_then_die(target: Path, content: BootstrapFile) -> None:
        original(target, content)
        raise Stop

    original = runner.write_operation_file
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "write_operation_file", save_then_die)
        with pytest.raises(Stop):
            run_bootstrap(session, command, path)
    written = path.read_bytes()
    assert session.run(lambda tx: counted(tx, command.application))["credentials"] == 0
    content, made = run_bootstrap(session, command, path)
    assert made
    assert path.read_bytes() == written
    assert json.loads(written) == {name: getattr(content, name) for name in KEYS}
    assert set(session.run(lambda tx: counted(tx, command.application)).values()) == {1}


def test_rows_but_no_file(session: Session, command: Bootstrap, tmp_path: Path) -> None:
    """A lost file is replaced by a new credential under the existing names; the old one stays as it is."""
    first, _ = run_bootstrap(session, command, tmp_path / "lost.json")
    second, made = run_bootstrap(session, command, tmp_path / "new.json")
    assert made
    assert second.credential_id != first.credential_id
    assert second.token != first.token
    same = ("application_id", "namespace_id", "queue_id")
    assert [getattr(first, name) for name in same] == [getattr(second, name) for name in same]
    counts = session.run(lambda tx: counted(tx, command.application))
    assert counts.pop("credentials") == 2
    assert counts.pop("audits") == 2
    assert set(counts.values()) == {1}


def test_the_file_is_there_before_the_commit(
    dsn: Dsn, session: Session, command: Bootstrap, tmp_path: Path
) -> None:
    """When the file appears, another connection still sees no rows."""
    path = tmp_path / "c.json"
    seen: list[int] = []
    other = Session(dsn)

    def save(target: Path, content: BootstrapFile) -> None:
        original(target, content)
        assert target.exists()
        sql = "SELECT COUNT(*) FROM credentials WHERE credential_id = UNHEX(%s)"
        seen.append(other.run(lambda tx: tx.value(sql, (content.credential_id,))))

    original = runner.write_operation_file
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "write_operation_file", save)
        run_bootstrap(session, command, path)
    other.close()
    assert seen == [0]


def test_an_existing_file_of_something_else_is_left_alone(
    session: Session, command: Bootstrap, tmp_path: Path
) -> None:
    """Never overwritten, whatever it holds; and nothing is made."""
    path = tmp_path / "c.json"
    for text in ("", "precious", '{"token": "x"}'):
        path.write_text(text)
        with pytest.raises(StateConflict, match="not a file of this operation"):
            run_bootstrap(session, command, path)
        assert path.read_text() == text
    assert session.run(lambda tx: counted(tx, command.application))["credentials"] == 0


@pytest.mark.parametrize("kind", ["FIFO", "device", "dangling link"])
def test_what_is_no_file_is_refused_at_once(
    session: Session, command: Bootstrap, tmp_path: Path, kind: str
) -> None:
    """A FIFO that nobody writes to, a device without end: nobody waits for them, and nothing is made."""
    path = tmp_path / "c.json"
    if kind == "FIFO":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "device" else tmp_path / "nowhere")
    with pytest.raises(StateConflict):
        run_bootstrap(session, command, path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.json"]


def test_a_file_of_other_names_is_refused(session: Session, command: Bootstrap, tmp_path: Path) -> None:
    """A file isn't mistaken for the credential of another application, namespace or queue."""
    path = tmp_path / "c.json"
    run_bootstrap(session, command, path)
    for other in (replace(command, queue="second"), replace(command, namespace="returns")):
        with pytest.raises(StateConflict, match="other names"):
            run_bootstrap(session, other, path)
        run_bootstrap(session, other, tmp_path / f"{other.queue}-{other.namespace}.json")
        with pytest.raises(StateConflict, match="other names"):
            run_bootstrap(session, other, path)


def test_other_actions_need_another_file(session: Session, command: Bootstrap, tmp_path: Path) -> None:
    """A repeated call with more permissions doesn't pretend to have granted them."""
    run_bootstrap(session, command, tmp_path / "c.json")
    with pytest.raises(StateConflict, match="other actions"):
        run_bootstrap(session, replace(command, actions=ACTIONS), tmp_path / "c.json")


def test_permissions_are_verified_first(session: Session, command: Bootstrap, tmp_path: Path) -> None:
    """One unknown action and nothing happens: no rows, no file."""
    bad = replace(command, actions=command.actions | {"tasks:destroy"})
    with pytest.raises(InvalidArgument, match="unknown action"):
        run_bootstrap(session, bad, tmp_path / "c.json")
    assert list(tmp_path.iterdir()) == []
    sql = "SELECT COUNT(*) FROM applications WHERE name = %s"
    assert session.run(lambda tx: tx.value(sql, (command.application,))) == 0


def test_an_unwritable_place_makes_nothing(session: Session, command: Bootstrap, tmp_path: Path) -> None:
    """Without a file there is no credential that nobody holds."""
    with pytest.raises(StateConflict, match="can't be written"):
        run_bootstrap(session, command, tmp_path / "missing" / "c.json")
    sql = "SELECT COUNT(*) FROM applications WHERE name = %s"
    assert session.run(lambda tx: tx.value(sql, (command.application,))) == 0


@pytest.mark.parametrize("is_same_file", [True, False])
def test_two_at_once(
    dsn: Dsn, session: Session, command: Bootstrap, tmp_path: Path, is_same_file: bool
) -> None:
    """Concurrent first calls share the names; with one file they share the credential too."""
    results: list[BootstrapFile] = []

    def call(index: int) -> None:
        own = Session(dsn)
        path = tmp_path / ("c.json" if is_same_file else f"{index}.json")
        results.append(run_bootstrap(own, command, path)[0])
        own.close()

    threads = [threading.Thread(target=call, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert len({result.queue_id for result in results}) == 1
    assert len({result.credential_id for result in results}) == (1 if is_same_file else 4)
    counts = session.run(lambda tx: counted(tx, command.application))
    assert counts["queues"] == counts["namespaces"] == 1
    assert counts["credentials"] == (1 if is_same_file else 4)


def call(dsn: Dsn, *arguments: str) -> tuple[int, str, str]:
    """Run `orbit-admin`; return exit code, standard output and standard error."""
    command = [sys.executable, str(ROOT / "bin" / "orbit-admin"), *arguments]
    environment = {**os.environ, "ORBIT_MYSQL_DSN": dsn.text(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_the_command_line(dsn: Dsn, tmp_path: Path) -> None:
    """Flags grant what they name; the secret is printed nowhere; exit codes are 0, 1 and 2."""
    name, path = f"cli-{secrets.token_hex(6)}", tmp_path / "c.json"
    names = ("--application", name, "--namespace", "n", "--environment", "e", "--queue", "q")
    flags = ("--worker-access", "--workflow-access", "--tasks-review", "--output", str(path))
    code, out, err = call(dsn, "bootstrap", *names, *flags, "--json")
    assert code == 0, err
    data: dict[str, Any] = json.loads(path.read_text())
    assert data["token"] not in out + err
    assert json.loads(out)["credential_id"] == data["credential_id"]
    assert call(dsn, "bootstrap", *names, *flags)[0] == 0

    code, out, _ = call(dsn, "credentials", "list", "--application", name, "--json")
    (listed,) = json.loads(out)["credentials"]
    extra = {"workflows:publish", "tasks:review"}
    assert set(listed["actions"]) == BOOTSTRAP_ACTIONS | WORKER_ACTIONS | extra
    assert listed["all_queues"] is True

    code, _, err = call(dsn, "bootstrap", *names[:-1], "no spaces", "--output", str(tmp_path / "d.json"))
    assert (code, err.count("\n")) == (1, 1)
    assert call(dsn, "bootstrap", "--application", name)[0] == 2
