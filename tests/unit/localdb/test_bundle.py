"""A server on PATH is taken only when it is of the flavour asked for and new enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbit.localdb.bundle import Flavour, Server, find_installed
from orbit.localdb.errors import HomeMismatch
from orbit.localdb.home import MAX_SOCKET_BYTES, Record, check_server, socket_path

MYSQL_84 = "mysqld  Ver 8.4.3 for Linux on x86_64 (MySQL Community Server - GPL)"
MYSQL_80 = "mysqld  Ver 8.0.40-0ubuntu0.24.04.1 for Linux on x86_64 ((Ubuntu))"
MARIADB = "mysqld  Ver 10.11.6-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)"
MARIADB_OLD = "mariadbd  Ver 10.5.23-MariaDB for Linux on x86_64"


def program(folder: Path, name: str, version: str) -> None:
    """Put a program on PATH that answers `--version` as a server does."""
    file = folder / name
    file.write_text(f"#!/bin/sh\necho '{version}'\n")
    file.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An otherwise empty PATH, with no server in the system's own folders either."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("orbit.localdb.bundle._SYSTEM_FOLDERS", ())
    return tmp_path


def test_a_supported_server_is_taken(path: Path) -> None:
    """MySQL 8.4 is enough, and runs without the X plugin's second port."""
    program(path, "mysqld", MYSQL_84)
    found = find_installed(Flavour.MYSQL)
    assert found is not None
    assert found.version == (8, 4, 3)
    assert found.command == (str(path / "mysqld"), "--no-defaults", "--mysqlx=OFF")


@pytest.mark.parametrize(
    ("name", "version", "flavour"),
    [
        ("mysqld", MYSQL_80, Flavour.MYSQL),
        ("mysqld", MARIADB, Flavour.MYSQL),
        ("mysqld", MYSQL_84, Flavour.MARIADB),
        ("mariadbd", MARIADB_OLD, Flavour.MARIADB),
        ("mysqld", "nothing that says a version", Flavour.MYSQL),
    ],
)
def test_another_server_is_not(path: Path, name: str, version: str, flavour: Flavour) -> None:
    """Too old, of the other flavour, or no server at all."""
    program(path, name, version)
    program(path, "mariadb-install-db", "")
    assert find_installed(flavour) is None


def test_mariadb_needs_its_installer_and_may_be_called_mysqld(path: Path) -> None:
    """Distributions split the two programs; without the installer no data directory can be made."""
    program(path, "mysqld", MARIADB)
    assert find_installed(Flavour.MARIADB) is None
    program(path, "mariadb-install-db", "")
    found = find_installed(Flavour.MARIADB)
    assert found is not None
    assert found.install_command == (str(path / "mariadb-install-db"), "--no-defaults")


@pytest.mark.parametrize(
    ("flavour", "version", "is_accepted"),
    [
        (Flavour.MYSQL, (9, 7, 1), True),
        (Flavour.MYSQL, (9, 8, 0), True),
        (Flavour.MYSQL, (9, 6, 9), False),
        (Flavour.MYSQL, (8, 4, 9), False),
        (Flavour.MARIADB, (11, 4, 2), False),
    ],
)
def test_data_is_opened_by_its_own_or_a_later_series(
    flavour: Flavour, version: tuple[int, ...], is_accepted: bool
) -> None:
    """Patch releases don't matter; going back a series or changing the flavour does."""
    record = Record(
        flavour=Flavour.MYSQL, version=(9, 7, 4), port=20001, is_port_fixed=False, socket="/run/made.sock"
    )
    server = Server(flavour=flavour, version=version, command=("server",))
    if is_accepted:
        check_server(record, server, Path("home"))
        return
    with pytest.raises(HomeMismatch, match=r"home was made by mysql 9\.7\.4"):
        check_server(record, server, Path("home"))


def test_a_long_home_gets_a_short_private_socket(tmp_path: Path) -> None:
    """The socket's path fits into what the kernel takes, in a directory of mode 0700 that is used again."""
    assert socket_path(Path("/short")) == "/short/server.sock"
    long_home = tmp_path / ("ü" * 60)
    first = socket_path(long_home)
    assert len(first.encode()) <= MAX_SOCKET_BYTES
    assert Path(first).parent.stat().st_mode & 0o777 == 0o700
    assert socket_path(long_home, first) == first
    Path(first).parent.chmod(0o755)
    second = socket_path(long_home, first)
    assert second != first
    for made in (first, second):
        Path(made).parent.rmdir()
