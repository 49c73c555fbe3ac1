"""`orbit up` as a process of its own, in a home of its own, on ports of its own."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from orbit.localdb.instance import create
from orbit.localdb.launch import started
from tests.support.database import QUICK, chosen_flavour

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 90.0
STOP_SECONDS = 60.0


@dataclass(slots=True)
class Up:
    """A running `orbit up`; `log` grows while it runs."""

    process: subprocess.Popen[str]
    home: Path
    ready: dict[str, str] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs to reach it."""
        return {"ORBIT_URL": self.ready["url"], "ORBIT_CREDENTIALS_FILE": self.ready["credentials_file"]}

    def children(self) -> dict[str, int]:
        """The pids of its processes by name, as it noted them."""
        rows: list[dict[str, Any]] = json.loads((self.home / "processes.json").read_bytes())
        return {row["name"]: row["pid"] for row in rows}

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(STOP_SECONDS)

    def kill(self) -> None:
        """End it as a crash would, with its processes left to themselves."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)


def prepare_home(home: Path) -> None:
    """Make a home whose private database is of the flavour that this run tests, with small buffers."""
    home.mkdir(mode=0o700, exist_ok=True)
    create(home / "database", chosen_flavour(), settings=QUICK)


def command(*arguments: str) -> list[str]:
    """The command line of `orbit`."""
    return [sys.executable, str(ROOT / "bin" / "orbit"), *arguments]


def clean_environment(**extra: str) -> dict[str, str]:
    """This process's environment without any of Orbit's variables, plus `extra`."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ORBIT_")}
    return {**plain, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "sdk")]), **extra}


@contextmanager
def orbit_up(home: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Up]:
    """Start `orbit up` and wait until it is ready; it is ended in any case."""
    process = subprocess.Popen(
        command("up", "--home", str(home), "--port", "0", "--dispatch-port", "0", "--json", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(**(environment or {})),
    )
    up = Up(process, home)
    answers: queue.SimpleQueue[str] = queue.SimpleQueue()
    assert process.stdout is not None
    assert process.stderr is not None
    readers = [
        threading.Thread(target=_read, args=(process.stdout, answers.put), daemon=True),
        threading.Thread(target=_read, args=(process.stderr, up.log.append), daemon=True),
    ]
    for reader in readers:
        reader.start()
    try:
        try:
            up.ready = json.loads(answers.get(timeout=READY_SECONDS))
        except queue.Empty:
            raise AssertionError("orbit up isn't ready:\n" + "\n".join(up.log[-50:])) from None
        yield up
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            finally:
                process.kill()
        for reader in readers:
            reader.join(10)
        process.stdout.close()
        process.stderr.close()


def start_of(pid: int) -> str:
    """The start time of a process, which with its pid names it; empty when there is none."""
    return started(pid)


def _read(stream: IO[str], take: Any) -> None:
    for line in stream:
        take(line.rstrip("\n"))
