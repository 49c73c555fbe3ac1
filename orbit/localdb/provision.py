"""A fresh data directory and the account and database in it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from orbit.localdb.apt import Say
from orbit.localdb.bundle import Flavour, Server
from orbit.localdb.errors import LocalDatabaseError
from orbit.localdb.home import Home, Record, check_server, write_private
from orbit.localdb.options import account_option, server_environment
from orbit.localdb.process import read_process

USER = "orbit"
DATABASE = "orbit"
INSTALL_TIMEOUT_SECONDS = 180


def prepare(home: Home, server: Server, *, port: int, settings: Mapping[str, str], say: Say) -> None:
    """Make a home with its data directory, or bring the record of a known one up to date unless its server runs.

    Raises:
        HomeMismatch: it was made by the other flavour or by a later release.
        LocalDatabaseError: the data directory can't be made.
    """
    known = home.read() if home.is_made else None
    if known is not None:
        check_server(known, server, home.root)
    home.make()
    with home.locked():
        if not home.data.is_dir():
            say(f"making a {server.flavour.value} {server.version_text} data directory")
            create_data(home, server)
        known = home.read() if home.is_made else None
        if known is not None and read_process(home) is not None:
            return
        record = Record(
            flavour=server.flavour,
            version=known.version if known else server.version,
            port=port or (known.port if known else 0),
            is_port_fixed=port != 0,
            socket=known.socket if known else "",
            settings=dict(settings),
        )
        home.write(record)


def create_data(home: Home, server: Server) -> None:
    """Make the data directory, complete or not at all.

    Raises:
        LocalDatabaseError: the server's own tool fails; the message has its last line.
    """
    unfinished = home.root / "data.new"
    shutil.rmtree(unfinished, ignore_errors=True)
    common = account_option()
    if server.flavour is Flavour.MYSQL:
        command = [*server.command, *common, f"--datadir={unfinished}", f"--tmpdir={home.temporary}"]
        command += ["--initialize-insecure", "--character-set-server=utf8mb4"]
    else:
        unfinished.mkdir(mode=0o700)
        # This installer takes a space for the end of a path: it gets none but one below its working directory.
        command = [*server.install_command, *common, f"--datadir=./{unfinished.name}"]
        command += ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
    try:
        finished = subprocess.run(
            command,
            env=server_environment(server, {"TMPDIR": str(home.temporary)}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=INSTALL_TIMEOUT_SECONDS,
            cwd=home.root,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LocalDatabaseError(f"{server.flavour.value} can't make a data directory: {error}") from error
    if finished.returncode:
        lines = finished.stdout.strip().splitlines()
        reason = next((line for line in lines if "ERROR" in line), lines[-1] if lines else "no reason given")
        raise LocalDatabaseError(f"{server.flavour.value} can't make a data directory: {reason}")
    unfinished.rename(home.data)


def write_init_file(home: Home, flavour: Flavour) -> Path:
    """Write the statements that each start runs before it accepts anybody; return the file's path.

    The user `orbit` (socket and loopback) may do everything in databases named `orbit…`; root's other ways in than the
    socket go, and so do accounts without a name. Each statement stands on one line of its own, which is what servers
    accept.
    """
    statements = [f"CREATE DATABASE IF NOT EXISTS `{DATABASE}` CHARACTER SET utf8mb4"]
    for account in (f"'{USER}'@'localhost'", f"'{USER}'@'127.0.0.1'"):
        statements += [
            f"CREATE USER IF NOT EXISTS {account} IDENTIFIED BY '{home.password()}'",
            f"GRANT ALL PRIVILEGES ON `{DATABASE}%`.* TO {account}",
        ]
    if flavour is Flavour.MARIADB:
        # Its installer also makes root accounts for the host's name and addresses, without a password.
        others = "User = '' OR (User = 'root' AND Host <> 'localhost')"
        statements = [f"DELETE FROM mysql.global_priv WHERE {others}", "FLUSH PRIVILEGES", *statements]
    file = home.root / "start.sql"
    write_private(file, ";\n".join(statements) + ";\n")
    return file
