"""Start one server and keep it no longer than whoever asked for it. Runs as a script of its own; standard library only.

A private server must not outlive its supervisor, even one that was killed. The supervisor holds the write end of a pipe
(the lifeline); this process holds the read end. End of file means that the supervisor is gone, and the server is
stopped. The server in turn dies with this process (Linux: parent-death signal). A parent-death signal alone wouldn't
do: it fires when the *thread* that started the server ends, and servers are started from worker threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import sys
import time
from typing import Any

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run the job given as JSON: `command`, `environment`, `process_file`, and for a tethered server also `lifeline`
    (a file descriptor), `supervisor` (a process id), `grace_seconds` and `remove` (directories to remove in the end).
    """
    job: dict[str, Any] = json.loads(sys.argv[1])
    if job["lifeline"] is None:
        record_process(job, os.getpid())
        os.execve(job["command"][0], job["command"], job["environment"])  # noqa: S606 - an argument list of our own
    os.set_inheritable(job["lifeline"], False)
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker)
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        become_server(job)
    record_process(job, child)
    status = hold(job, child, wake)
    sys.exit(os.waitstatus_to_exitcode(status) & 0xFF)


def become_server(job: dict[str, Any]) -> None:
    """Turn this forked process into the server, bound to its parent's life."""
    try:
        parent = os.getppid()
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        for inherited in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(inherited, signal.SIG_DFL)
        os.execve(job["command"][0], job["command"], job["environment"])  # noqa: S606 - an argument list of our own
    finally:
        os._exit(127)


def record_process(job: dict[str, Any], pid: int) -> None:
    """Say which process is the server, so that others can find it."""
    supervisor = job["supervisor"]
    record = {
        "pid": pid,
        "started": started(pid),
        "supervisor": supervisor,
        "supervisor_started": started(supervisor) if supervisor else "",
    }
    temporary = job["process_file"] + ".new"
    with open(temporary, "w", encoding="ascii") as file:  # noqa: PTH123 - this process stays small
        json.dump(record, file)
    os.replace(temporary, job["process_file"])  # noqa: PTH105


def started(pid: int) -> str:
    """Return the start time of a process as the kernel counts it (with the pid, a unique name); empty if unknown."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def hold(job: dict[str, Any], child: int, wake: int) -> int:
    """Wait for the server's own end, or end it once the lifeline is cut; return its wait status."""
    while True:
        ready, _, _ = select.select([job["lifeline"], wake], [], [])
        if wake in ready:
            os.read(wake, 512)
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
        if job["lifeline"] in ready and not os.read(job["lifeline"], 64):
            status = end(child, job["grace_seconds"])
            for folder in job["remove"]:
                shutil.rmtree(folder, ignore_errors=True)
            return status


def end(child: int, grace_seconds: float) -> int:
    """Stop the server within the grace, then kill it; return its wait status."""
    deadline = time.monotonic() + grace_seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)
        for _ in range(20):
            time.sleep(0.05)
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


if __name__ == "__main__":
    main()
