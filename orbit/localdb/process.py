"""The server's process: launched, found again by what was recorded, and ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path

import msgspec

from orbit.localdb import launch
from orbit.localdb.home import Home

POLL_SECONDS = 0.02
# A server whose supervisor has died gets this long to stop in order.
ABANDONED_GRACE_SECONDS = 20.0


class Lifetime(Enum):
    """How long a started server runs unless it is stopped."""

    SUPERVISED = (
        "until the process that started it ends, however that comes about; then it is stopped in order"
    )
    DETACHED = "until it is stopped"
    TEMPORARY = "like SUPERVISED, but it is killed and its home is removed"


class ServerProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A server's process id with its kernel start time, and the same of its supervisor (0: it stands alone)."""

    pid: int
    started: str
    supervisor: int | None = None
    supervisor_started: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether this very process still runs (a zombie doesn't)."""
        return is_running(self.pid, self.started)

    @property
    def is_detached(self) -> bool:
        """Whether the server was started to outlive its starter."""
        return self.supervisor is None

    @property
    def has_supervisor(self) -> bool:
        """Whether the process that the server is tied to still runs."""
        return self.supervisor is not None and is_running(self.supervisor, self.supervisor_started)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has gone."""
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, seconds: float) -> bool:
        """Wait for the process's end; return whether it came in time."""
        deadline = time.monotonic() + seconds
        while self.is_alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True


class Launcher:
    """The helper process of a server that this process started, with the lifeline to it (see `launch`)."""

    def __init__(self, process: subprocess.Popen[bytes], lifeline: int | None) -> None:
        self._process = process
        self._lifeline = lifeline

    @property
    def has_ended(self) -> bool:
        """Whether the server (and with it the launcher) has ended."""
        return self._process.poll() is not None

    def close(self, seconds: float) -> None:
        """Cut the lifeline and collect the launcher; what hangs longer is killed, and the server with it."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def start_process(
    home: Home,
    command: Sequence[str],
    environment: Mapping[str, str],
    lifetime: Lifetime,
    *,
    remove: Sequence[Path],
) -> Launcher:
    """Start a server; a temporary one takes the directories in `remove` with it."""
    home.process_file.unlink(missing_ok=True)
    is_detached, is_temporary = lifetime is Lifetime.DETACHED, lifetime is Lifetime.TEMPORARY
    reader, writer = (None, None) if is_detached else os.pipe()
    job = {
        "command": list(command),
        "environment": dict(environment),
        "process_file": str(home.process_file),
        "lifeline": reader,
        "supervisor": None if is_detached else os.getpid(),
        "grace_seconds": 0 if is_temporary else ABANDONED_GRACE_SECONDS,
        "remove": [str(folder) for folder in remove] if is_temporary else [],
    }
    with home.log.open("ab") as log:
        process = subprocess.Popen(
            # Isolated and without site packages: small and quick to start.
            [sys.executable, "-I", "-S", launch.__file__, json.dumps(job)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C in a terminal goes to the supervisor alone, which stops things in order.
            start_new_session=True,
            pass_fds=() if reader is None else (reader,),
            cwd=home.root,
        )
    if reader is not None:
        os.close(reader)
    return Launcher(process, writer)


def read_process(home: Home) -> ServerProcess | None:
    """Return the recorded server process if it still runs."""
    try:
        found = msgspec.json.decode(home.process_file.read_bytes(), type=ServerProcess)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
    return found if found.is_alive else None


def is_running(pid: int, started: str) -> bool:
    """Whether the process with this id and start time runs; without `/proc`, whether the id is in use."""
    if not started:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True
    if launch.started(pid) != started:
        return False
    try:
        state = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="ascii", errors="replace")
            .rpartition(")")[2]
            .split()[0]
        )
    except OSError:
        return False
    return state != "Z"
