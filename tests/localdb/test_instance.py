"""A private instance is durable, closed to others, and found as it was left."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbit.localdb.bundle import Flavour, find_server
from orbit.localdb.errors import HomeMismatch, LocalDatabaseError, PortTaken
from orbit.localdb.instance import Instance, create, find
from orbit.localdb.options import SMALL
from orbit.localdb.process import Lifetime
from orbit.store.connection import connect
from orbit.store.dsn import Dsn, parse_dsn
from orbit.store.failures import DriverError
from tests.support.database import chosen_flavour
from tests.support.faketime import clocked_instance


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """An instance that these tests may kill, in a home whose path is too long for a socket."""
    home = tmp_path_factory.mktemp("private") / ("long-" * 30)
    made = create(home, chosen_flavour(), settings=SMALL)
    made.start()
    yield made
    made.destroy()
    assert not home.exists()


def rows(dsn: Dsn, statement: str) -> list[Any]:
    """Run one statement on a connection of its own."""
    connection = connect(dsn, autocommit=True)
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())
    finally:
        connection.close()


def variable(instance: Instance, name: str) -> str:
    """Read a server variable."""
    return str(instance.execute(f"SELECT @@GLOBAL.{name}")[0][0])


def test_commits_are_durable_and_logs_bounded(own: Instance) -> None:
    """What the server acknowledges survives a power cut, and its logs don't fill the disk."""
    expected = {
        "innodb_flush_log_at_trx_commit": "1",
        "sync_binlog": "1",
        "log_bin": "1",
        "binlog_format": "ROW",
        "binlog_expire_logs_seconds": "3600",
        "max_binlog_size": "67108864",
        "character_set_server": "utf8mb4",
        "time_zone": "+00:00",
        "innodb_buffer_pool_size": SMALL["innodb-buffer-pool-size"],
    }
    assert {name: variable(own, name) for name in expected} == expected


def test_only_this_machine_and_user_get_in(own: Instance) -> None:
    """The server listens on loopback; its files are closed; root is refused over TCP, with any password."""
    assert variable(own, "bind_address") == "127.0.0.1"
    assert own.home.stat().st_mode & 0o777 == 0o700
    assert (own.home / "password").stat().st_mode & 0o777 == 0o600
    assert Path(own.socket).parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(DriverError):
        connect(Dsn(user="root", host="127.0.0.1", port=own.port))
    with pytest.raises(DriverError):
        connect(Dsn(user="orbit", host="127.0.0.1", port=own.port))


def test_no_account_is_left_that_nobody_asked_for(own: Instance) -> None:
    """Beside the servers' own locked accounts there are root on the socket, and orbit there and over loopback."""
    accounts = own.execute(
        "SELECT User, Host FROM mysql.user WHERE User NOT LIKE 'mysql.%' AND User <> 'mariadb.sys'"
    )
    assert sorted(accounts) == [("orbit", "127.0.0.1"), ("orbit", "localhost"), ("root", "localhost")]


def test_the_user_owns_its_databases_and_nothing_else(own: Instance) -> None:
    """The processes' account can do everything in databases named orbit…, and can't read the server's accounts."""
    own.create_database("orbit_other")
    dsn = own.dsn("orbit_other")
    rows(dsn, "CREATE TABLE made (id INT PRIMARY KEY)")
    rows(dsn, "DROP TABLE made")
    with pytest.raises(DriverError):
        rows(dsn, "SELECT * FROM mysql.user")


def test_committed_rows_survive_a_crash_on_the_same_address(own: Instance) -> None:
    """After a SIGKILL the same address serves what was committed."""
    dsn, pid = own.dsn(), own.pid
    rows(dsn, "CREATE TABLE kept (id INT PRIMARY KEY)")
    rows(dsn, "INSERT INTO kept VALUES (7)")
    own.kill()
    assert not own.is_running
    with pytest.raises(DriverError):
        connect(dsn)
    own.start()
    assert own.pid != pid
    assert rows(dsn, "SELECT id FROM kept") == [(7,)]


def test_a_restart_keeps_the_address(own: Instance) -> None:
    """An orderly restart changes the process alone."""
    dsn, pid = own.dsn(), own.pid
    own.restart()
    assert own.dsn() == dsn
    assert own.pid not in {pid, None}
    assert rows(dsn, "SELECT 1") == [(1,)]


def test_a_started_instance_starts_once(own: Instance) -> None:
    """Starting what runs changes nothing."""
    pid = own.pid
    own.start()
    assert own.pid == pid


def test_a_password_that_the_server_does_not_know_is_reported_at_once(own: Instance) -> None:
    """Waiting longer would change nothing."""
    own.execute("ALTER USER orbit@localhost IDENTIFIED BY 'another'")
    try:
        with pytest.raises(LocalDatabaseError, match="Access denied"):
            own.start()
    finally:
        own.execute(f"ALTER USER orbit@localhost IDENTIFIED BY '{own.dsn().password}'")
        own.start()


def test_a_frozen_server_is_killed_in_the_end(own: Instance) -> None:
    """Stopping is bounded even when the server doesn't answer the signal."""
    process = own.pid
    assert process is not None
    own.signal(signal.SIGSTOP)
    own.stop(timeout_seconds=0.3)
    assert not own.is_running
    own.start()


def test_a_taken_port_is_replaced_unless_it_was_asked_for(own: Instance) -> None:
    """A port of our own choosing gives way; a port that the caller fixed is reported in one line."""
    own.stop()
    taken = own.port
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", taken))
        holder.listen()
        own.start()
        assert own.port != taken
        assert rows(own.dsn(), "SELECT 1") == [(1,)]
        own.stop()
        fixed = create(own.home, port=taken, settings=SMALL)
        with pytest.raises(PortTaken, match="port is in use"):
            fixed.start()
        assert not fixed.is_running
    create(own.home, port=taken, settings=SMALL)
    own.start()
    assert own.port == taken


def test_a_home_may_have_any_name(tmp_path: Path) -> None:
    """Its path goes through the server's tools and, as the socket's, through an address."""
    made = create(tmp_path / "a b %41?x=1#y&'数", chosen_flavour(), settings=SMALL)
    try:
        made.start(Lifetime.TEMPORARY)
        assert rows(parse_dsn(made.dsn().text()), "SELECT 1") == [(1,)]
    finally:
        made.destroy()


def test_another_flavour_refuses_the_data(own: Instance) -> None:
    """A data directory is opened only by the kind of server that made it."""
    other = Flavour.MARIADB if own.flavour is Flavour.MYSQL else Flavour.MYSQL
    with pytest.raises(HomeMismatch, match=f"was made by {own.flavour.value}"):
        create(own.home, other)


def test_an_older_server_refuses_the_data(own: Instance) -> None:
    """A server of an earlier release series doesn't touch data of a later one."""
    record = own.home / "instance.json"
    original = record.read_bytes()
    record.write_text(json.dumps({**json.loads(original), "version": [99, 0, 0]}))
    try:
        with pytest.raises(HomeMismatch, match="older"):
            create(own.home)
    finally:
        record.write_bytes(original)


def test_a_home_without_an_instance_is_reported(tmp_path: Path) -> None:
    """Looking for an instance makes none."""
    with pytest.raises(LocalDatabaseError, match="no database instance"):
        find(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_server_that_cannot_start_says_why(own: Instance) -> None:
    """The last error of the server's log is in the message, and no process is left."""
    own.stop()
    broken = create(own.home, settings={**SMALL, "innodb_no_such_option": "1"})
    with pytest.raises(LocalDatabaseError, match="innodb-no-such-option"):
        broken.start()
    assert not broken.is_running
    create(own.home, settings=SMALL)
    own.start()


def test_tests_can_move_the_servers_clock(tmp_path: Path) -> None:
    """Under libfaketime the database's time follows a file, in a living server."""
    with clocked_instance(tmp_path) as clock:
        before = int(rows(clock.instance.dsn(), "SELECT UNIX_TIMESTAMP()")[0][0])
        clock.step("+2h")
        after = int(rows(clock.instance.dsn(), "SELECT UNIX_TIMESTAMP()")[0][0])
        assert 7200 <= after - before < 7260


def test_the_server_is_of_the_flavour_asked_for() -> None:
    """The suite really runs on what it says."""
    assert find_server(chosen_flavour()).flavour is chosen_flavour()
