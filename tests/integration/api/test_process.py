"""orbit-api as a process: ready, stopping, exit codes and their one line."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orbit.localdb.instance import Instance
from orbit.store.dsn import Dsn

ROOT = Path(__file__).resolve().parents[3]


def environment(dsn: str, **changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ORBIT_")}
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "ORBIT_MYSQL_DSN": dsn,
        "ORBIT_HTTP_ADDR": "127.0.0.1:0",
        "ORBIT_LOG_FORMAT": "json",
        **changes,
    }


@contextmanager
def process(**env: str) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, str(ROOT / "bin" / "orbit-api")], env=env, stderr=subprocess.PIPE, text=True
    )
    try:
        yield started
    finally:
        started.kill()
        started.wait()
        assert started.stderr is not None
        started.stderr.close()


def wait_ready(started: subprocess.Popen[str]) -> int:
    """Return the port once the process says that it serves."""
    assert started.stderr is not None
    for line in started.stderr:
        found = re.search(r'"address": ?"127\.0\.0\.1:(\d+)"', line)
        if found and '"ready"' in line:
            return int(found[1])
    raise AssertionError("the process ended before it was ready")


def ask(port: int, target: str) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as peer:
        peer.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return b"".join(iter(lambda: peer.recv(65_536), b"")).decode()


def test_ready_then_sigterm_then_zero(dsn: Dsn, tmp_path: Path) -> None:
    """systemd hears READY=1, WATCHDOG=1 and STOPPING=1; idle connections don't delay the exit."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(path)
        notify.settimeout(20)
        env = environment(dsn.text(), NOTIFY_SOCKET=path, WATCHDOG_USEC="200000")
        with process(**env) as started:
            port = wait_ready(started)
            heard = {notify.recv(100) for _ in range(4)}
            assert {b"READY=1", b"WATCHDOG=1"} <= heard
            assert '{"status":"ok"}' in ask(port, "/readyz")
            with socket.create_connection(("127.0.0.1", port)):
                began = time.monotonic()
                started.send_signal(signal.SIGTERM)
                assert started.wait(timeout=15) == 0
                assert time.monotonic() - began < 5
            while (word := notify.recv(100)) == b"WATCHDOG=1":
                pass
            assert word == b"STOPPING=1"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ORBIT_HTTP_ADDR": "nowhere"}, "ORBIT_HTTP_ADDR"),
        ({"ORBIT_MYSQL_DSN": ""}, "ORBIT_MYSQL_DSN"),
        ({"ORBIT_TLS_CERT": __file__}, "ORBIT_TLS_KEY"),
    ],
)
def test_bad_configuration_is_one_line(changes: dict[str, str], words: str) -> None:
    """Exit code 1, and the variable is named."""
    with process(**environment("mysql://u:p@127.0.0.1:1/x", **changes)) as started:
        _, text = started.communicate(timeout=20)
        assert started.returncode == 1
    assert words in text
    assert len(text.strip().splitlines()) == 1


def test_an_address_in_use_is_one_line(dsn: Dsn) -> None:
    """Exit code 1 without a traceback."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with process(**environment(dsn.text(), ORBIT_HTTP_ADDR=address)) as started:
            _, text = started.communicate(timeout=20)
            assert started.returncode == 1
    assert "can't listen on" in text
    assert "Traceback" not in text


def test_stopping_while_the_database_is_away() -> None:
    """SIGTERM during the wait for the database ends it at once with 0; the password stays out of the log."""
    with process(**environment("mysql://u:hidden@127.0.0.1:1/x")) as started:
        assert started.stderr is not None
        line = started.stderr.readline()
        assert "database_unreachable" in line
        assert "hidden" not in line
        began = time.monotonic()
        started.send_signal(signal.SIGTERM)
        assert started.wait(timeout=15) == 0
        assert time.monotonic() - began < 5


def test_an_unknown_schema_is_refused(instance: Instance) -> None:
    """A database without a schema: exit code 1, and what to do."""
    instance.create_database("orbit_empty")
    with process(**environment(instance.dsn("orbit_empty").text())) as started:
        _, text = started.communicate(timeout=20)
        assert started.returncode == 1
    assert "orbit-migrate up" in text
