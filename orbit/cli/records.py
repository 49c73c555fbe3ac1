"""What `orbit up` notes in its home, so that the next one finds what a killed one left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from orbit.localdb.launch import started

TERM_SECONDS = 15.0


class HomeBusy(Exception):
    """Another `orbit up` runs in this home."""


class ProcessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One child: `started` is its start time as the kernel counts it, so that a reused pid isn't mistaken for it."""

    name: str
    pid: int
    started: str

    @property
    def is_alive(self) -> bool:
        return bool(self.started) and started(self.pid) == self.started


class Records:
    """The file `processes.json` of a home."""

    def __init__(self, home: Path) -> None:
        self._path = home / "processes.json"

    def write(self, pids: dict[str, int]) -> None:
        """Replace the records by these (name to pid)."""
        rows = [ProcessRecord(name=name, pid=pid, started=started(pid)) for name, pid in pids.items()]
        fresh = self._path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(rows))
        fresh.replace(self._path)

    def read(self) -> list[ProcessRecord]:
        """Return what the last `orbit up` noted; nothing if that was never or can't be read."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=list[ProcessRecord])
        except (OSError, msgspec.MsgspecError):
            return []

    def end_leftovers(self) -> list[str]:
        """End the processes of a killed `orbit up` that still run; return their names."""
        left = [record for record in self.read() if record.is_alive]
        for number, seconds in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, 5.0)):
            for record in left:
                if record.is_alive:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(record.pid, number)
            _wait_gone(left, seconds)
        return [record.name for record in left]


def _wait_gone(records: list[ProcessRecord], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(record.is_alive for record in records) and time.monotonic() < deadline:
        time.sleep(0.05)


@contextmanager
def alone_in(home: Path) -> Iterator[None]:
    """Hold this home; the system lets go of it when this process ends, however that comes about.

    Raises:
        HomeBusy: another process holds it.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (home / "up.lock").open("a+", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise HomeBusy(
                f"orbit up already runs in {home} (process {lock.read().strip() or '?'})"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
