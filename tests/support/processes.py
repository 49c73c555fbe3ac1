"""Orbit's processes as they are deployed: started, awaited, frozen, killed, and gone at the end of the test."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from orbit.store.dsn import Dsn
from tests.support.eventually import eventually
from tests.support.faketime import wrong_clock
from tests.support.tenants import Tenant

ROOT = Path(__file__).resolve().parents[2]
TETHER = ROOT / "orbit" / "cli" / "tether.py"
WORKER = ROOT / "tests" / "support" / "worker_program.py"
READY_SECONDS = 40.0
STOP_SECONDS = 40.0


class Process:
    """One process with its log; every line on standard error is one JSON object, or kept as text."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        self.name = name
        self.lines: list[str] = []
        self.events: list[dict[str, Any]] = []
        self._news = threading.Condition()
        # Bound to this process's life: a test run that is killed leaves nothing behind.
        self._popen = subprocess.Popen(
            [sys.executable, str(TETHER), str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def await_event(self, event: str, *, within: float = READY_SECONDS, **facts: Any) -> dict[str, Any]:
        """Return the first log line with this event and these facts, past or to come; fail if the process ends."""
        deadline = time.monotonic() + within
        seen = 0
        with self._news:
            while True:
                for line in self.events[seen:]:
                    if line.get("event") == event and facts.items() <= line.items():
                        return line
                seen = len(self.events)
                left = deadline - time.monotonic()
                if left <= 0 or not (
                    self._news.wait(min(left, 0.2)) or self.is_alive or self._reader.is_alive()
                ):
                    raise AssertionError(f"{self.name} logged no {event} {facts}:\n{self.tail()}")

    def freeze(self) -> None:
        """SIGSTOP: the process does nothing more once this returns, its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)
        eventually(lambda: _thread_states(self.pid) == {"T"}, what=f"{self.name} stands still", pause=0.0005)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        if self.is_alive:
            self._popen.kill()
        self._popen.wait(STOP_SECONDS)

    def ask_to_stop(self) -> None:
        """SIGTERM, without waiting for what comes of it."""
        self._popen.terminate()

    def ended(self, within: float = STOP_SECONDS) -> int:
        """Wait for the end and return the exit code."""
        return self._popen.wait(within)

    def terminate(self, within: float = STOP_SECONDS) -> int:
        """SIGTERM, and return the exit code."""
        self.ask_to_stop()
        return self.ended(within)

    def tail(self, count: int = 40) -> str:
        return "\n".join(self.lines[-count:])

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.thaw()
        self.kill()
        self._reader.join(5)
        assert self._popen.stderr is not None
        self._popen.stderr.close()

    def _read(self) -> None:
        assert self._popen.stderr is not None
        for line in self._popen.stderr:
            text = line.rstrip("\n")
            try:
                event = json.loads(text)
            except ValueError:
                event = {}
            with self._news:
                self.lines.append(text)
                if isinstance(event, dict) and event:
                    self.events.append(event)
                self._news.notify_all()


def _thread_states(pid: int) -> set[str]:
    """The kernel's letters for what the threads of a process are doing; T is stopped."""
    stats = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    return {stat.rpartition(")")[2].split()[0] for stat in stats}


class Site:
    """A whole installation on one database. Use as a context manager: leaving ends every process.

    Each process may be given a `dsn` of its own, for example a proxy's, and a `clock` that is wrong, such as "+1d".
    """

    def __init__(self, dsn: Dsn, folder: Path, *, lease_ms: int = 2_000) -> None:
        self.dsn = dsn
        self.effects = folder / "effects.jsonl"
        self._lease_ms = lease_ms
        self._processes: list[Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.close()
        # Shown with a failed test alone; a fixture isn't told of the failure.
        for process in self._processes:
            print(f"--- {process.name} {process.pid}\n{process.tail()}")

    def api(self, *, dsn: Dsn | None = None, port: int = 0, clock: str = "") -> tuple[Process, str]:
        """Start orbit-api; return it and the address on which it serves."""
        process = self._start("orbit-api", dsn, clock, ORBIT_HTTP_ADDR=f"127.0.0.1:{port}")
        return process, str(process.await_event("ready")["address"])

    def dispatch(self, *, dsn: Dsn | None = None, port: int = 0, clock: str = "") -> tuple[Process, str]:
        """Start orbit-dispatch; return it and the URL for workers."""
        process = self._start("orbit-dispatch", dsn, clock, ORBIT_DISPATCH_ADDR=f"127.0.0.1:{port}")
        return process, str(process.await_event("ready")["url"])

    def recover(self, *, dsn: Dsn | None = None, clock: str = "") -> Process:
        """Start orbit-recover."""
        process = self._start("orbit-recover", dsn, clock)
        process.await_event("ready")
        return process

    def worker(
        self,
        tenant: Tenant,
        worker_url: str,
        *,
        api: str = "",
        capacity: int = 4,
        name: str = "",
        clock: str = "",
    ) -> Process:
        """Start a worker of the SDK that notes every execution in `effects`, and wait for its session."""
        process = self._launch(
            "worker",
            [str(WORKER)],
            **wrong_clock(clock),
            ORBIT_URL=api or "http://127.0.0.1:9",
            ORBIT_TOKEN=tenant.token_text,
            ORBIT_WORKER_URL=worker_url,
            TEST_QUEUE=tenant.queue_id.hex(),
            TEST_EFFECTS=str(self.effects),
            TEST_CAPACITY=str(capacity),
            TEST_NAME=name,
        )
        process.await_event("connected")
        return process

    def executions(self, event: str = "start") -> list[dict[str, Any]]:
        """Return what the workers' handlers noted, in the order of writing."""
        if not self.effects.exists():
            return []
        lines = [json.loads(line) for line in self.effects.read_text().splitlines()]
        return [line for line in lines if line["event"] == event]

    def _start(self, program: str, dsn: Dsn | None, clock: str, **variables: str) -> Process:
        return self._launch(
            program,
            [str(ROOT / "bin" / program)],
            ORBIT_MYSQL_DSN=(dsn or self.dsn).text(),
            ORBIT_LEASE_MS=str(self._lease_ms),
            ORBIT_LOG_FORMAT="json",
            **wrong_clock(clock),
            **variables,
        )

    def _launch(self, name: str, command: list[str], **variables: str) -> Process:
        plain = {key: value for key, value in os.environ.items() if not key.startswith("ORBIT_")}
        path = os.pathsep.join([str(ROOT), str(ROOT / "sdk")])
        process = Process(name, [sys.executable, *command], {**plain, "PYTHONPATH": path, **variables})
        self._processes.append(process)
        return process
