"""Which database server answers, and whether this release works with it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from orbit.store.transaction import Tx

OLDEST: Final = {"MySQL": (8, 4), "MariaDB": (10, 11)}


@dataclass(frozen=True, slots=True)
class DatabaseServer:
    """The family (MySQL or MariaDB) and the version's first two numbers."""

    family: str
    version: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.family} {self.version[0]}.{self.version[1]}"


def read_server(tx: Tx) -> DatabaseServer:
    """Return what the server says about itself."""
    text = str(tx.value("SELECT VERSION()"))
    found = re.search(r"(\d+)\.(\d+)", text)
    family = "MariaDB" if "mariadb" in text.lower() else "MySQL"
    return DatabaseServer(family, (int(found[1]), int(found[2])) if found else (0, 0))


def unsupported(server: DatabaseServer) -> str:
    """Return why this release doesn't work with the server, an empty text if it does."""
    oldest = OLDEST[server.family]
    if server.version >= oldest:
        return ""
    return f"{server} is too old: this release needs MySQL 8.4 or later, or MariaDB 10.11 or later"
