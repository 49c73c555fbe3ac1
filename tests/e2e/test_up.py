"""`orbit up` starts everything, stops it in order, finds its data again, and cleans up after its own death."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import httpcore
import pytest
import trio

from orbit.localdb.instance import find
from orbit_sdk import Client, Queue, SubmitTask
from tests.support.orbit_up import Up, clean_environment, command, orbit_up, prepare_home, start_of

T = TypeVar("T")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a private database that was never started."""
    path = tmp_path / "home"
    prepare_home(path)
    return path


def asked(up: Up, question: Callable[[Client], Awaitable[T]]) -> T:
    """Ask the running API something."""

    async def ask() -> T:
        async with Client.from_env(up.environment) as client:
            return await question(client)

    return trio.run(ask)


def is_ready(up: Up) -> bool:
    """Whether the API reaches its database."""
    try:
        return httpcore.request("GET", f"{up.ready['url']}/readyz").status == 200
    except (httpcore.NetworkError, httpcore.TimeoutException):
        return False


async def default_queue(client: Client) -> Queue:
    return (await client.list_queues(name="default")).queues[0]


def submitted(up: Up) -> str:
    """Submit one task to the queue `default` and return its id."""

    async def submit(client: Client) -> str:
        queue = await default_queue(client)
        task = SubmitTask(
            queue_id=queue.id, handler="h", handler_version="1", payload_version="1", payload={"n": 1}
        )
        return (await client.submit(task, idempotency_key=secrets.token_hex(8))).task.id

    return asked(up, submit)


def state_of(up: Up, task_id: str) -> str:
    return asked(up, lambda client: client.get_task(task_id)).state


def eventually(is_so: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until something outside of this process has happened."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it didn't happen"
        time.sleep(0.05)


def test_stop_and_start_keep_the_data(home: Path) -> None:
    """Ctrl-C and SIGTERM end it with 0 and nothing running; the next start serves the same tasks and credential."""
    with orbit_up(home) as up:
        credentials = Path(up.ready["credentials_file"])
        assert stat.S_IMODE(credentials.stat().st_mode) == 0o600
        written = credentials.read_bytes()
        task_id = submitted(up)
        children = {pid: start_of(pid) for pid in up.children().values()}
        assert len(children) == 3
        assert all(children.values())
        assert up.stop(signal.SIGINT) == 0
        assert all(start_of(pid) != start for pid, start in children.items())
    with orbit_up(home) as up:
        assert state_of(up, task_id) == "WAITING"
        assert credentials.read_bytes() == written
        assert up.stop(signal.SIGTERM) == 0
        assert up.log[-1] == "orbit    | stopped"


def test_a_killed_one_is_cleaned_up_after(home: Path) -> None:
    """kill -9 leaves nothing behind for long: its processes end, and the next start has the data and the ports."""
    with orbit_up(home) as up:
        task_id = submitted(up)
        children = {pid: start_of(pid) for pid in up.children().values()}
        up.kill()
        eventually(lambda: all(start_of(pid) != start for pid, start in children.items()))
    with orbit_up(home) as up:
        assert state_of(up, task_id) == "WAITING"


def test_a_leftover_that_ignores_its_parents_end_is_ended(home: Path) -> None:
    """A frozen process of a killed `orbit up` can't obey; the next start ends it and says so."""
    with orbit_up(home) as up:
        pid = up.children()["recover"]
        start = start_of(pid)
        os.kill(pid, signal.SIGSTOP)
        up.kill()
    try:
        assert start_of(pid) == start
        with orbit_up(home) as up:
            assert start_of(pid) != start
            assert any("ended recover, left over" in line for line in up.log)
    finally:
        if start_of(pid) == start:
            os.kill(pid, signal.SIGKILL)


def test_a_crashed_process_is_started_again(home: Path) -> None:
    """The log says which one ended and how; the others go on; a second `orbit up` in this home is refused."""
    with orbit_up(home) as up:
        before = up.children()
        os.kill(before["recover"], signal.SIGKILL)
        eventually(lambda: up.children().get("recover") not in (None, before["recover"]))
        assert any("recover ended with SIGKILL" in line for line in up.log)
        after = up.children()
        assert [after[name] for name in ("api", "dispatch")] == [before[name] for name in ("api", "dispatch")]
        assert asked(up, default_queue).name == "default"
        second = subprocess.run(
            command("up", "--home", str(home)),
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert second.returncode == 1
        assert f"orbit up already runs in {home} (process {up.process.pid})" in second.stderr


def test_a_crashed_database_is_started_again(home: Path) -> None:
    """Nobody has to notice that the system killed it: the same data is back, and the processes find it."""
    with orbit_up(home) as up:
        task_id = submitted(up)
        find(home / "database").kill()
        eventually(lambda: "orbit    | the database has ended; it is started again" in up.log)
        eventually(lambda: is_ready(up))
        assert state_of(up, task_id) == "WAITING"
        assert up.stop() == 0


def test_reset_starts_afresh(home: Path) -> None:
    """The data and the credential are new."""
    with orbit_up(home) as up:
        submitted(up)
        before = Path(up.ready["credentials_file"]).read_bytes()
        up.stop()
    with orbit_up(home, "--reset") as up:
        assert Path(up.ready["credentials_file"]).read_bytes() != before
        assert asked(up, default_queue).unfinished_tasks == 0


def test_a_taken_port_is_one_clear_line(home: Path) -> None:
    """Nothing is started, and the line says how to choose another port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            command("up", "--home", str(home), "--port", str(port)),
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == (
        f"error: port {port} on 127.0.0.1 is taken; choose another with --port or ORBIT_HTTP_ADDR\n"
    )
    assert not (home / "credentials.json").exists()


def test_a_home_that_cant_be_is_one_clear_line(tmp_path: Path) -> None:
    """Below a file, read-only or full: the system's word for it, no traceback."""
    (tmp_path / "file").touch()
    done = subprocess.run(
        command("up", "--home", str(tmp_path / "file" / "home")),
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("error: ")
    assert "Not a directory" in done.stderr


def test_reset_never_touches_a_given_database(home: Path) -> None:
    """With ORBIT_MYSQL_DSN set, --reset is refused as wrong usage."""
    done = subprocess.run(
        command("up", "--home", str(home), "--reset"),
        env=clean_environment(ORBIT_MYSQL_DSN="mysql://a@127.0.0.1/b"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
