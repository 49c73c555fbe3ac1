"""A private database instance: made once, then started, stopped and found again (01-architecture)."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

import msgspec

from orbit.localdb.apt import Say, silent
from orbit.localdb.bundle import Flavour, Server, find_any_server, find_server
from orbit.localdb.errors import InstanceBusy, LocalDatabaseError, PortTaken
from orbit.localdb.home import Home, check_server, socket_path
from orbit.localdb.options import server_arguments, server_environment
from orbit.localdb.ports import free_port
from orbit.localdb.process import Launcher, Lifetime, read_process, start_process
from orbit.localdb.provision import DATABASE, USER, prepare, write_init_file
from orbit.localdb.readiness import wait_ready
from orbit.localdb.serverlog import ServerLog
from orbit.store.connection import connect
from orbit.store.dsn import Dsn
from orbit.store.failures import DriverError, describe

STOP_TIMEOUT_SECONDS = 30.0
PORT_TRIES = 4


class Instance:
    """One private database under its home directory.

    `environment` is added to the server's own, for example to preload a library. The methods block; they are called
    from one thread at a time, which need not be the same one.
    """

    def __init__(self, home: Home, server: Server, *, environment: Mapping[str, str] | None = None) -> None:
        self._home = home
        self._server = server
        self._environment = dict(environment or {})
        self._launcher: Launcher | None = None
        self._lifetime = Lifetime.SUPERVISED

    @property
    def home(self) -> Path:
        """The directory that holds everything of this instance."""
        return self._home.root

    @property
    def flavour(self) -> Flavour:
        """The family of the server."""
        return self._server.flavour

    @property
    def version(self) -> tuple[int, ...]:
        """The server's version."""
        return self._server.version

    @property
    def port(self) -> int:
        """The TCP port on 127.0.0.1; it stays the same over restarts unless another program has taken it meanwhile."""
        return self._home.read().port

    @property
    def socket(self) -> str:
        """The path of the server's unix socket, the only way in for root."""
        return self._home.read().socket

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        process = read_process(self._home)
        return process.pid if process else None

    @property
    def is_running(self) -> bool:
        """Whether the server's process is there."""
        return self.pid is not None

    def dsn(self, database: str = DATABASE) -> Dsn:
        """Return the address for Orbit's processes: user `orbit`, all rights on databases named `orbit…`.

        It leads over the socket, which takes less of each round trip; without `unix_socket` it leads over TCP.
        """
        return Dsn(
            user=USER,
            password=self._home.password(),
            host="127.0.0.1",
            port=self.port,
            database=database,
            unix_socket=self.socket,
        )

    def admin_dsn(self, database: str = "") -> Dsn:
        """Return the address for root over the socket."""
        return Dsn(user="root", unix_socket=self.socket, database=database)

    def start(self, lifetime: Lifetime | None = None) -> None:
        """Start the server unless it runs; return when it accepts connections.

        `lifetime` is the last one used on this object by default, at first `SUPERVISED`.

        Raises:
            InstanceBusy: another live process supervises it.
            HomeMismatch: the data directory is another flavour's or a later release's.
            LocalDatabaseError: it doesn't start; the message has the last error of its log.
        """
        with self._home.locked():
            if self._adopt():
                return
            self._let_go()
            self._lifetime = lifetime or self._lifetime
            check_server(self._home.read(), self._server, self.home)
            for attempt in range(PORT_TRIES):
                self._record_way_in(is_new_port=attempt > 0)
                try:
                    self._start_once()
                    return
                except PortTaken:
                    if self._home.read().is_port_fixed or attempt == PORT_TRIES - 1:
                        raise

    def stop(self, timeout_seconds: float = STOP_TIMEOUT_SECONDS) -> None:
        """Stop the server in order; kill it when it takes longer than the timeout."""
        process = read_process(self._home)
        if process is not None:
            process.signal(signal.SIGTERM)
            if not process.wait(timeout_seconds):
                self.kill()
        self._let_go()

    def kill(self) -> None:
        """End the server at once, as a crash would (SIGKILL); return when it has gone."""
        process = read_process(self._home)
        if process is not None:
            process.signal(signal.SIGKILL)
            process.wait(STOP_TIMEOUT_SECONDS)
        self._let_go()

    def signal(self, number: signal.Signals) -> None:
        """Send the server a signal, for example to freeze it; nothing happens when it doesn't run."""
        process = read_process(self._home)
        if process is not None:
            process.signal(number)

    def restart(self) -> None:
        """Stop the server in order and start it again on the same port."""
        self.stop()
        self.start()

    def create_database(self, name: str) -> None:
        """Create a database unless it exists; the user `orbit` owns it when its name starts with `orbit`."""
        self.execute(f"CREATE DATABASE IF NOT EXISTS `{name.replace('`', '``')}`")

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """Run one statement as root and return its rows."""
        connection = connect(self.admin_dsn(), read_timeout=30.0, autocommit=True)
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def destroy(self) -> None:
        """Stop the server and remove the home, data included."""
        self.kill()
        self._home.remove()

    def _adopt(self) -> bool:
        """Deal with a server that already runs here: accept it, refuse, or wait for the end of an abandoned one."""
        process = read_process(self._home)
        if process is None:
            return False
        if self._launcher is not None or process.is_detached:
            log = ServerLog(self._home.log)
            wait_ready(lambda: not process.is_alive, log, admin=self.admin_dsn())
            self._enter()
            return True
        if process.has_supervisor:
            raise InstanceBusy(f"{self.home} is in use by process {process.supervisor}")
        # Its supervisor was killed; the launcher is stopping it.
        if not process.wait(STOP_TIMEOUT_SECONDS):
            process.signal(signal.SIGKILL)
            process.wait(STOP_TIMEOUT_SECONDS)
        return False

    def _record_way_in(self, *, is_new_port: bool) -> None:
        record = self._home.read()
        port = record.port
        if not record.is_port_fixed and (is_new_port or port == 0):
            port = free_port()
        path = socket_path(self.home, record.socket)
        self._home.write(msgspec.structs.replace(record, port=port, socket=path))

    def _start_once(self) -> None:
        record = self._home.read()
        self._home.clear_traces(record.socket)
        log = ServerLog(self._home.log)
        log.begin()
        init_file = write_init_file(self._home, self.flavour)
        arguments = server_arguments(self._home, record)
        command = [*self._server.command, *arguments, f"--init-file={init_file}"]
        self._launcher = launcher = start_process(
            self._home,
            command,
            server_environment(self._server, self._environment),
            self._lifetime,
            remove=sorted({self.home, Path(record.socket).parent}),
        )
        try:
            wait_ready(lambda: launcher.has_ended, log, admin=self.admin_dsn())
            self._enter()
        except BaseException:
            self.kill()
            raise
        finally:
            init_file.unlink(missing_ok=True)
        self._home.write(msgspec.structs.replace(record, version=self._server.version))

    def _enter(self) -> None:
        """Find out whether Orbit's user gets in."""
        try:
            connect(self.dsn()).close()
        except DriverError as error:
            raise LocalDatabaseError(f"{self.home} doesn't let {USER} in: {describe(error)}") from error

    def _let_go(self) -> None:
        if self._launcher is not None:
            self._launcher.close(STOP_TIMEOUT_SECONDS)
            self._launcher = None


def create(
    home: Path,
    flavour: Flavour | str | None = None,
    *,
    port: int = 0,
    settings: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    say: Say = silent,
) -> Instance:
    """Make an instance under `home` (mode 0700) and return it, not started; an existing one is kept and, unless
    it runs, its settings are replaced.

    `flavour` is `mysql`, `mariadb`, or `None` for the best that is to be had; `port` 0 chooses a free one; `settings`
    are server options by name.

    Raises:
        HomeMismatch: `home` was made by the other flavour or by a later release.
        LocalDatabaseError: no server can be had, or it can't make its data directory.
    """
    place = Home(home.absolute())
    if place.is_made:
        record = place.read()
        wanted = Flavour(flavour) if flavour else record.flavour
        server = find_server(wanted, oldest=record.version if wanted is record.flavour else (), say=say)
    else:
        server = find_server(Flavour(flavour), say=say) if flavour else find_any_server(say=say)
    prepare(place, server, port=port, settings=settings or {}, say=say)
    return Instance(place, server, environment=environment)


def find(home: Path, *, environment: Mapping[str, str] | None = None, say: Say = silent) -> Instance:
    """Return the instance that was made under `home`, running or not.

    Raises:
        LocalDatabaseError: there is none, or its server can't be had any more.
    """
    place = Home(home.absolute())
    record = place.read()
    server = find_server(record.flavour, oldest=record.version, say=say)
    return Instance(place, server, environment=environment)
