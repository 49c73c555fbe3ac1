"""Worker processes of a measurement: started, released together, ended."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from bench.lab import Lab
from bench.probe import Starts, read_delays, read_starts
from bench.tenants import Tenant
from bench.worker import WorkerOptions
from orbit.cli.supervisor import tethered

# Groups of 64 in three stages (claimed, starting, ending) with a group's worth of slack.
CAPACITY: Final = 256
_NUMBERS: Final = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """Where one worker process works: for whom, and by which API and dispatcher (names of the fleet)."""

    tenant: Tenant
    dispatcher: str
    api: str = "api"
    capacity: int = CAPACITY
    workers: int = 1


class Crew:
    """Running worker processes."""

    def __init__(self, processes: Sequence[subprocess.Popen[str]], probes: Sequence[Path]) -> None:
        self._processes = processes
        self._probes = probes

    def release(self) -> None:
        """Let them connect and work."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()

    def await_connected(self) -> None:
        """Return once all sessions of all processes are open."""
        for process in self._processes:
            _expect(process, "connected")

    @property
    def starts(self) -> Starts:
        return read_starts(self._probes)

    @property
    def pids(self) -> dict[str, int]:
        """Process ids as `worker-1`, `worker-2`, …"""
        return {f"worker-{n}": process.pid for n, process in enumerate(self._processes, start=1)}

    def delays(self) -> list[float]:
        """Return the seconds from submit to start of all jobs that asked for it."""
        return [delay for probe in self._probes for delay in read_delays(probe)]


@contextmanager
def crew(lab: Lab, *posts: Post) -> Iterator[Crew]:
    """Start a worker process for each post; they wait, imported, until they are released."""
    processes, probes = [], []
    try:
        for post in posts:
            probe = lab.folder / f"probe-{next(_NUMBERS)}"
            processes.append(_start(lab, post, probe))
            probes.append(probe)
        for process in processes:
            _expect(process, "ready")
        yield Crew(processes, probes)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            _end(process)


def _start(lab: Lab, post: Post, probe: Path) -> subprocess.Popen[str]:
    options = WorkerOptions(
        url=lab.fleet.url(post.api),
        token=post.tenant.token_text,
        worker_url=lab.fleet.url(post.dispatcher),
        queue=post.tenant.queue,
        capacity=post.capacity,
        probe=str(probe),
        workers=post.workers,
    )
    with (lab.folder / "workers.log").open("ab") as log:
        return subprocess.Popen(
            tethered([sys.executable, "-m", "bench.worker", msgspec.json.encode(options).decode()]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )


def _expect(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if line != word:
        raise RuntimeError(f"a worker said {line!r} instead of {word!r}; see workers.log")


def _end(process: subprocess.Popen[str]) -> None:
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
