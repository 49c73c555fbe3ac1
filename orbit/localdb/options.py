"""The options that a private server runs with, by flavour."""

from __future__ import annotations

import os
from collections.abc import Mapping

from orbit.localdb.bundle import Flavour, Server
from orbit.localdb.home import Home, Record

# Durable: what was committed survives a kill and a power cut, and both flavours pay the same for it.
_DURABLE = {
    "innodb-flush-log-at-trx-commit": "1",
    "sync-binlog": "1",
    "log-bin": "binlog",
    "server-id": "1",
}
# Nothing reads these logs but crash recovery: an hour of them is plenty, and the disk doesn't fill.
_BOUNDED = {"binlog-expire-logs-seconds": "3600", "max-binlog-size": "67108864"}
_COMMON = {
    "bind-address": "127.0.0.1",
    # Accounts are matched by address, so root@localhost is the socket alone.
    "skip-name-resolve": "ON",
    "local-infile": "OFF",
    "character-set-server": "utf8mb4",
    "default-time-zone": "+00:00",
    # MariaDB's default. Watching every statement costs MySQL a tenth of its CPU; whoever looks for a reason sets it.
    "performance-schema": "OFF",
    "innodb-buffer-pool-size": "134217728",
    "max-connections": "200",
    "table-open-cache": "1000",
    "table-definition-cache": "1000",
}
_BY_FLAVOUR = {
    # No statement reads or writes files of the system.
    # On few cores a COMMIT is quicker when it writes the redo log itself instead of waking a thread for it.
    Flavour.MYSQL: {"secure-file-priv": "NULL", "innodb-log-writer-threads": "OFF"},
    # MySQL's default, and the only format it keeps.
    Flavour.MARIADB: {"binlog-format": "ROW"},
}
# For servers of tests: little memory, otherwise the same.
SMALL = {
    "innodb-buffer-pool-size": "67108864",
    "max-connections": "151",
    # Races are proven by the lock waits that it shows.
    "performance-schema": "ON",
    "table-open-cache": "400",
    "table-definition-cache": "400",
}


def server_options(flavour: Flavour, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the options of one flavour by name, `settings` over the defaults (`_` and `-` are the same)."""
    merged = {**_COMMON, **_DURABLE, **_BOUNDED, **_BY_FLAVOUR[flavour]}
    merged.update((name.replace("_", "-"), value) for name, value in settings.items())
    return merged


def server_arguments(home: Home, record: Record) -> list[str]:
    """Return the arguments that keep a server inside its home and set it as recorded."""
    options = {
        **server_options(record.flavour, record.settings),
        "datadir": str(home.data),
        "tmpdir": str(home.temporary),
        "log-error": str(home.log),
        "pid-file": str(home.pid_file),
        "socket": record.socket,
        "port": str(record.port),
    }
    return [*account_option(), *(f"--{name}={value}" for name, value in options.items())]


def server_environment(server: Server, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a server: nothing of the caller's reaches it except `extra`."""
    plain = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C",
        "TZ": "UTC",
    }
    return {**plain, **server.environment, **extra}


def account_option() -> list[str]:
    """Return the option without which a server refuses to run as root."""
    return ["--user=root"] if os.geteuid() == 0 else []
