"""Find a database server on PATH, or fetch one from the distribution's packages into the user's cache."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from orbit.localdb.apt import Say, cache_home, fetch_once, silent
from orbit.localdb.errors import LocalDatabaseError, ServerMissing
from orbit.localdb.sources import other_suite, own_release, read_distribution, read_sources


class Flavour(StrEnum):
    """The two families of servers."""

    MYSQL = "mysql"
    MARIADB = "mariadb"


OLDEST: Mapping[Flavour, tuple[int, ...]] = {Flavour.MYSQL: (8, 4), Flavour.MARIADB: (10, 11)}
_PROGRAMS = {Flavour.MYSQL: ("mysqld",), Flavour.MARIADB: ("mariadbd", "mysqld")}
# System folders that hold servers and are often missing from a plain user's PATH.
_SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/usr/libexec")
_ADVICE = {
    Flavour.MYSQL: "install MySQL 8.4 or later (mysqld on PATH), or set ORBIT_MYSQL_DSN",
    Flavour.MARIADB: "install MariaDB 10.11 or later (package mariadb-server-core), or set ORBIT_MYSQL_DSN",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that can be started: its command with the options that its files need, and its version."""

    flavour: Flavour
    version: tuple[int, ...]
    command: tuple[str, ...]
    install_command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def version_text(self) -> str:
        """Return the version as dotted numbers."""
        return ".".join(map(str, self.version))


def find_server(flavour: Flavour, *, oldest: tuple[int, ...] = (), say: Say = silent) -> Server:
    """Return a server of this flavour: from PATH when its version is supported, else a cached or fetched bundle.

    `oldest` is the version that made the data to be opened: an installed server of an earlier series is passed over.

    Raises:
        ServerMissing: there is none and none can be fetched; the message says what to install.
    """
    installed = find_installed(flavour)
    if installed is not None and installed.version[:2] >= oldest[:2]:
        return installed
    try:
        return fetch_server(flavour, say=say)
    except LocalDatabaseError as error:
        raise ServerMissing(f"no {flavour.value} server ({error}): {_ADVICE[flavour]}") from error


def find_any_server(*, say: Say = silent) -> Server:
    """Return the best server to be had: an installed one, MySQL first, else a fetched one.

    Raises:
        ServerMissing: there is none; the message says what to install.
    """
    for flavour in Flavour:
        installed = find_installed(flavour)
        if installed is not None:
            return installed
    reasons = []
    for flavour in Flavour:
        try:
            return fetch_server(flavour, say=say)
        except LocalDatabaseError as error:
            reasons.append(f"{flavour.value}: {error}")
    raise ServerMissing(f"no database server ({'; '.join(reasons)}): {_ADVICE[Flavour.MYSQL]}")


def find_installed(flavour: Flavour) -> Server | None:
    """Return a supported server of this flavour that the system has, if any."""
    for program in _PROGRAMS[flavour]:
        path = shutil.which(program) or shutil.which(program, path=":".join(_SYSTEM_FOLDERS))
        if path is None:
            continue
        version = probe_version((path,), flavour)
        if version is None or version < OLDEST[flavour]:
            continue
        if flavour is Flavour.MYSQL:
            return Server(flavour=flavour, version=version, command=(path, "--no-defaults", "--mysqlx=OFF"))
        install = shutil.which("mariadb-install-db")
        if install is not None:
            command = (path, "--no-defaults")
            return Server(
                flavour=flavour, version=version, command=command, install_command=(install, "--no-defaults")
            )
    return None


def fetch_server(flavour: Flavour, *, say: Say = silent) -> Server:
    """Return the bundled server of this flavour, fetched unless the cache has it.

    Raises:
        LocalDatabaseError: it can't be fetched, or doesn't run here.
    """
    if flavour is Flavour.MYSQL:
        return _mysql_bundle(say)
    return _mariadb_bundle(say)


def fetch_faketime(*, say: Say = silent) -> Path:
    """Return libfaketime's multi-threaded library, to be preloaded into a server by tests that move time.

    Raises:
        LocalDatabaseError: it can't be fetched.
    """
    release = read_distribution().codename or "own"
    tree = fetch_once(["libfaketime"], cache_home() / f"faketime-{release}", closure=False, say=say)
    library = next(tree.rglob("libfaketimeMT.so.1"), None)
    if library is None:
        raise LocalDatabaseError("the distribution's libfaketime package holds no libfaketimeMT.so.1")
    return library


def probe_version(
    command: tuple[str, ...], flavour: Flavour, environment: Mapping[str, str] | None = None
) -> tuple[int, ...] | None:
    """Ask a server for its version; `None` when it doesn't run or is of the other flavour."""
    try:
        shown = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, check=False, env=environment, timeout=30
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    numbers = re.search(r"Ver (\d+)\.(\d+)\.(\d+)", shown)
    if numbers is None or ("MariaDB" in shown) != (flavour is Flavour.MARIADB):
        return None
    return tuple(int(number) for number in numbers.groups())


def _mysql_bundle(say: Say) -> Server:
    distribution = read_distribution()
    if distribution.name == "ubuntu":
        # Ubuntu's own suites carry MySQL; releases that have only 8.0 don't know this package.
        package, sources = "mysql-server-core-8.4", own_release(read_sources(), distribution)
    else:
        package, sources = "mysql-server-core", other_suite(read_sources(), distribution, "sid")
    tree = cache_home() / "mysql"
    if not tree.is_dir():
        say("fetching MySQL from the distribution's packages (once, about 50 MB)")
    fetch_once([package], tree, sources=sources, without=("perl", "libperl", "libgdbm", "libdb5"), say=say)
    usr = tree / "usr"
    loader = _loader(tree)
    folders = [*(str(p) for p in _library_folders(tree)), str(usr / "lib/mysql/private")]
    program = (str(loader), "--library-path", ":".join(folders), str(usr / "sbin/mysqld"))
    version = probe_version(program, Flavour.MYSQL)
    if version is None or version < OLDEST[Flavour.MYSQL]:
        raise LocalDatabaseError(f"the server in {tree} does not run here or is too old")
    options = (
        "--no-defaults",
        f"--basedir={usr}",
        f"--lc-messages-dir={usr / 'share/mysql'}",
        f"--character-sets-dir={usr / 'share/mysql/charsets'}",
        f"--plugin-dir={usr / 'lib/mysql/plugin'}",
        "--mysqlx=OFF",
    )
    return Server(flavour=Flavour.MYSQL, version=version, command=(*program, *options))


def _mariadb_bundle(say: Say) -> Server:
    release = read_distribution().codename or "own"
    tree = cache_home() / f"mariadb-{release}"
    if not tree.is_dir():
        say("fetching MariaDB from the distribution's packages (once, about 16 MB)")
    # The client package holds my_print_defaults, which the install script calls.
    fetch_once(["mariadb-server-core", "mariadb-client-core"], tree, say=say)
    usr = tree / "usr"
    environment = {"LD_LIBRARY_PATH": ":".join(str(folder) for folder in _library_folders(tree))}
    program = (str(usr / "sbin/mariadbd"),)
    version = probe_version(program, Flavour.MARIADB, environment)
    if version is None or version < OLDEST[Flavour.MARIADB]:
        raise LocalDatabaseError(f"the server in {tree} does not run here or is too old")
    options = (
        "--no-defaults",
        f"--basedir={usr}",
        f"--lc-messages-dir={usr / 'share/mysql'}",
        f"--plugin-dir={usr / 'lib/mysql/plugin'}",
    )
    install = (str(usr / "bin/mariadb-install-db"), "--no-defaults", f"--basedir={usr}")
    return Server(
        flavour=Flavour.MARIADB,
        version=version,
        command=(*program, *options),
        install_command=install,
        environment=environment,
    )


def _library_folders(tree: Path) -> list[Path]:
    triplet = f"{platform.machine()}-linux-gnu"
    folders = [tree / "usr/lib" / triplet, tree / "lib" / triplet]
    return [folder for folder in folders if folder.is_dir()]


def _loader(tree: Path) -> Path:
    """Return the dynamic loader that belongs to the bundle's own C library."""
    for pattern in (
        "usr/lib*/ld-linux*.so.*",
        "lib*/ld-linux*.so.*",
        "usr/lib/*/ld-linux*.so.*",
        "lib/*/ld-linux*.so.*",
    ):
        for loader in sorted(tree.glob(pattern)):
            if loader.exists():
                return loader
    raise LocalDatabaseError(f"{tree} holds no dynamic loader")
