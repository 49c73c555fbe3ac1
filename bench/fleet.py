"""Orbit's daemons as real processes: which run is what a measurement asks for."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orbit.cli.places import free_address
from orbit.cli.procfile import PACKAGE, find_program
from orbit.cli.supervisor import tethered
from orbit.runtime.setting_values import Address
from orbit.store.dsn import Dsn
from orbit.store.session import Session

API: Final = "api"
DISPATCH: Final = "dispatch-1"
SECOND_DISPATCH: Final = "dispatch-2"
RECOVER: Final = "recover"
# Groups of one (bench.single).
SINGLE_API: Final = "api-single"
SINGLE_DISPATCH: Final = "dispatch-single"

READY_SECONDS: Final = 30.0
STOP_SECONDS: Final = 25.0
_ANY_PORT: Final = Address(host="127.0.0.1", port=0)
_SINGLE: Final = "-single"


class DaemonFailed(Exception):
    """A daemon ended, or never got ready; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """A running process and where it listens."""

    process: subprocess.Popen[bytes]
    address: Address
    log: Path


class Fleet:
    """Starts and stops daemons on one database. They end with this process, however that ends."""

    def __init__(self, dsn: Dsn, session: Session, home: Path) -> None:
        self._dsn = dsn
        self._session = session
        self._home = home
        self._daemons: dict[str, Daemon] = {}

    def keep(self, *names: str) -> None:
        """Let exactly these daemons run: stop the others, start those that are missing."""
        for name in [name for name in self._daemons if name not in names]:
            self._stop(name)
        missing = [name for name in names if name not in self._daemons]
        for name in missing:
            self._start(name)
        for name in missing:
            self._await_ready(name)

    def stop(self) -> None:
        """Stop all."""
        self.keep()

    def url(self, name: str) -> str:
        """Return an API's URL, or the URL by which workers reach a dispatcher."""
        scheme = "http" if _kind(name) == "api" else "ws"
        return f"{scheme}://{self._daemons[name].address}"

    def pid(self, name: str) -> int:
        return self._daemons[name].process.pid

    def pids(self) -> dict[str, int]:
        """Return the process ids of all that run, by name."""
        return {name: daemon.process.pid for name, daemon in self._daemons.items()}

    def _start(self, name: str) -> None:
        kind = _kind(name)
        command = find_program(f"orbit-{kind}")
        if name.endswith(_SINGLE):
            command = (sys.executable, "-m", "bench.single", kind)
        address = free_address(_ANY_PORT, option="", variable="")
        log = self._home / f"{name}.log"
        with log.open("ab") as file:
            process = subprocess.Popen(
                tethered(command),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=self._environment(kind, address),
                start_new_session=True,
            )
        self._daemons[name] = Daemon(process, address, log)

    def _environment(self, kind: str, address: Address) -> dict[str, str]:
        root = PACKAGE.parent
        variable = "ORBIT_HTTP_ADDR" if kind == "api" else "ORBIT_DISPATCH_ADDR"
        plain = {name: value for name, value in os.environ.items() if not name.startswith("ORBIT_")}
        return {
            **plain,
            "PYTHONPATH": f"{root}:{root / 'sdk'}",
            "ORBIT_MYSQL_DSN": self._dsn.text(),
            variable: str(address),
        }

    def _await_ready(self, name: str) -> None:
        looks: dict[str, Callable[[str], bool]] = {
            "api": self._api_answers,
            "dispatch": self._is_registered,
            "recover": self._beats,
        }
        look = looks[_kind(name)]
        deadline = time.monotonic() + READY_SECONDS
        while not look(name):
            daemon = self._daemons[name]
            if daemon.process.poll() is not None or time.monotonic() > deadline:
                text = daemon.log.read_text(encoding="utf-8", errors="replace")
                raise DaemonFailed(f"{name} didn't get ready:\n{text[-2000:]}")
            time.sleep(0.05)

    def _api_answers(self, name: str) -> bool:
        address = self._daemons[name].address
        connection = http.client.HTTPConnection(address.host, address.port, timeout=2)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def _is_registered(self, name: str) -> bool:
        url = self.url(name)
        return bool(
            self._session.run(lambda tx: tx.value("SELECT COUNT(*) FROM dispatchers WHERE url = %s", (url,)))
        )

    def _beats(self, _name: str) -> bool:
        sql = "SELECT COUNT(*) FROM recovery_clock WHERE beat_at > UTC_TIMESTAMP(6) - INTERVAL 2 SECOND"
        return bool(self._session.run(lambda tx: tx.value(sql)))

    def _stop(self, name: str) -> None:
        process = self._daemons.pop(name).process
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _kind(name: str) -> str:
    return name.partition("-")[0]
