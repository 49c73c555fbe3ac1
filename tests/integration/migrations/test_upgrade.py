"""Migrations run from nothing to the newest, once, alone, forward only, and survive being killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orbit.store import migrations
from orbit.store.connection import connect
from orbit.store.drift import find_drift
from orbit.store.dsn import Dsn
from orbit.store.migrations import MigrationsBusy, current_revision, read_status, render_sql, upgrade
from orbit.store.schema import KNOWN_HEAD, SchemaMismatch, require_schema
from orbit.store.tables import metadata
from orbit.store.transaction import Tx

# Runs the migration, and kills itself right after the given number of statements went through.
KILLED_RUN = """
import os, signal, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine
from orbit.store.dsn import parse_dsn
from orbit.store.migrations import upgrade

left = int(sys.argv[2])

@event.listens_for(Engine, "after_cursor_execute")
def count(*_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

upgrade(parse_dsn(sys.argv[1]))
"""


def test_the_known_head_is_the_newest_migration() -> None:
    """What processes compare with needs no alembic, and yet agrees with the files."""
    assert migrations.newest_migration() == KNOWN_HEAD


def test_empty_to_head(empty: Dsn) -> None:
    """One call makes the whole schema, the next finds nothing to do, and processes accept the result."""
    assert current_revision(empty) is None
    assert [step.revision for step in read_status(empty).pending] == [KNOWN_HEAD]
    assert [step.revision for step in upgrade(empty)] == [KNOWN_HEAD]
    assert upgrade(empty) == ()
    assert current_revision(empty) == KNOWN_HEAD
    assert read_status(empty).pending == ()
    with connect(empty) as connection:
        require_schema(Tx(connection))
        assert Tx(connection).row("SELECT COUNT(*), MIN(LENGTH(cursor_key)) FROM installation") == (1, 32)
        assert Tx(connection).row("SELECT COUNT(*) FROM recovery_clock") == (1,)


def test_processes_refuse_a_database_without_schema(empty: Dsn) -> None:
    """The message says what to do."""
    with connect(empty) as connection, pytest.raises(SchemaMismatch, match="orbit-migrate up"):
        require_schema(Tx(connection))


def test_a_newer_database_is_refused(empty: Dsn) -> None:
    """A release never touches tables that a later one has changed."""
    upgrade(empty)
    with connect(empty, autocommit=True) as connection:
        Tx(connection).execute("UPDATE alembic_version SET version_num = '999999'")
        with pytest.raises(SchemaMismatch, match="newer"):
            require_schema(Tx(connection))
    with pytest.raises(SchemaMismatch, match="newer"):
        upgrade(empty)
    with pytest.raises(SchemaMismatch, match="newer"):
        read_status(empty)
    assert current_revision(empty) == "999999"


@pytest.mark.parametrize("statements", [1, 2, 9, 24, 26])
def test_a_run_that_was_killed_is_repeated(empty: Dsn, statements: int) -> None:
    """F48: wherever a run is killed, the next one completes the same schema."""
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_RUN, empty.text(), str(statements)], check=False, capture_output=True
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    upgrade(empty)
    assert current_revision(empty) == KNOWN_HEAD
    assert find_drift(empty) == []
    with connect(empty) as connection:
        assert Tx(connection).value("SELECT COUNT(*) FROM installation") == 1
        assert Tx(connection).value("SELECT COUNT(*) FROM alembic_version") == 1


def test_one_run_at_a_time(empty: Dsn, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one run holds the lock another one waits, and gives up after its bound."""
    upgrade(empty)
    monkeypatch.setattr(migrations, "LOCK_WAIT_SECONDS", 0)
    with (
        migrations._connected(empty) as holder,
        migrations._alone(holder, empty),
        pytest.raises(MigrationsBusy),
    ):
        upgrade(empty)
    assert upgrade(empty) == ()


def test_concurrent_runs_agree(empty: Dsn) -> None:
    """Two runs at once: one works, the other finds the work done."""
    done: list[int] = []
    threads = [threading.Thread(target=lambda: done.append(len(upgrade(empty)))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [0, 1]
    assert find_drift(empty) == []


def test_the_printed_sql_makes_the_same_schema(empty: Dsn) -> None:
    """`orbit-migrate sql` is the migration: run by hand it leaves no difference."""
    script = [part for part in render_sql().split(";\n") if part.strip()]
    with connect(empty, autocommit=True) as connection:
        for statement in script:
            Tx(connection).execute(
                "\n".join(line for line in statement.splitlines() if not line.startswith("--"))
            )
    assert find_drift(empty) == []
    assert current_revision(empty) == KNOWN_HEAD


def test_only_tables_are_made(empty: Dsn) -> None:
    """No views, routines, triggers or events: nothing but tables."""
    upgrade(empty)
    with connect(empty) as connection:
        tx = Tx(connection)
        kinds = tx.rows(
            "SELECT DISTINCT table_type FROM information_schema.tables WHERE table_schema = DATABASE()"
        )
        assert [row[0] for row in kinds] == ["BASE TABLE"]
        for source, column in (
            ("routines", "routine_schema"),
            ("triggers", "trigger_schema"),
            ("events", "event_schema"),
        ):
            assert (
                tx.value(f"SELECT COUNT(*) FROM information_schema.{source} WHERE {column} = DATABASE()") == 0
            )


def test_the_command_line(empty: Dsn) -> None:
    """up, status and check answer with their exit codes; check names what differs."""
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "ORBIT_MYSQL_DSN": empty.text(), "PYTHONPATH": str(root)}

    def run(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, str(root / "bin" / "orbit-migrate"), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    assert run("status")[0] == 1
    assert run("up", "--json") == (0, f'{{"applied": ["{KNOWN_HEAD}"], "current": "{KNOWN_HEAD}"}}\n')
    assert run("status")[0] == 0
    assert run("check") == (0, "no difference\n")
    with connect(empty, autocommit=True) as connection:
        Tx(connection).execute("ALTER TABLE lanes DROP INDEX ix_lanes_key")
    code, text = run("check")
    assert code == 1
    assert "lanes: missing in the database: KEY `ix_lanes_key`" in text
    assert run("nonsense")[0] == 2


def test_drift_names_every_kind_of_difference(empty: Dsn) -> None:
    """A type, a comment, a check, a default, a foreign key, a missing and a foreign table are all noticed."""
    upgrade(empty)
    changes = (
        (
            "queues",
            "MODIFY max_concurrency BIGINT UNSIGNED NOT NULL COMMENT '活跃尝试上限，1–100000；降低不撤销在途'",
        ),
        ("lanes", "COMMENT = 'x'"),
        ("namespaces", "DROP CONSTRAINT ck_namespaces_state"),
        ("receipts", "ALTER COLUMN created_at SET DEFAULT '2000-01-01 00:00:00'"),
        ("credential_queues", "ADD FOREIGN KEY (queue_id) REFERENCES queues (queue_id)"),
    )
    with connect(empty, autocommit=True) as connection:
        tx = Tx(connection)
        for table, change in changes:
            tx.execute(f"ALTER TABLE {table} {change}")
        tx.execute("DROP TABLE late_evidence")
        tx.execute("CREATE TABLE stranger (id INT PRIMARY KEY)")
    named = {line.partition(":")[0] for line in find_drift(empty)}
    assert named == {table for table, _ in changes} | {"late_evidence", "stranger"}
    assert named < set(metadata.tables) | {"stranger"}
