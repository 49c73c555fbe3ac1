"""A private server ends with whoever started it, unless it was told not to; its data stays."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbit.localdb.errors import InstanceBusy
from orbit.localdb.instance import Instance, create
from orbit.localdb.options import SMALL
from orbit.localdb.process import Lifetime
from tests.support.database import chosen_flavour

STARTER = """
import sys
from pathlib import Path
from orbit.localdb.instance import find
from orbit.localdb.process import Lifetime
find(Path(sys.argv[1])).start(Lifetime.{lifetime})
print("started", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """The instance that these tests start and lose, one after the other."""
    instance = create(tmp_path_factory.mktemp("supervised") / "home", chosen_flavour(), settings=SMALL)
    yield instance
    instance.destroy()


@pytest.fixture
def instance(made: Instance) -> Iterator[Instance]:
    """A made instance, not started; stopped in the end, whoever started it."""
    yield made
    made.kill()


@pytest.fixture
def starters() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that started a server; they are gone in the end."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def start_elsewhere(
    starters: list[subprocess.Popen[str]], instance: Instance, lifetime: Lifetime = Lifetime.SUPERVISED
) -> subprocess.Popen[str]:
    """Start the server of this instance from another process, which then waits."""
    script = STARTER.format(lifetime=lifetime.name)
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(instance.home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    starters.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


def kill_and_wait(starter: subprocess.Popen[str], instance: Instance) -> bool:
    """Kill the starter; return whether its server ended within 30 s."""
    starter.kill()
    starter.communicate()
    deadline = time.monotonic() + 30
    while instance.is_running and time.monotonic() < deadline:
        time.sleep(0.05)
    return not instance.is_running


def test_a_killed_supervisor_takes_its_server_along_and_leaves_the_data(
    instance: Instance, starters: list[subprocess.Popen[str]]
) -> None:
    """After SIGKILL of the supervisor the server ends by itself, and the next start serves the same data."""
    starter = start_elsewhere(starters, instance)
    instance.execute("CREATE TABLE orbit.kept (id INT PRIMARY KEY)")
    assert kill_and_wait(starter, instance)
    instance.start()
    assert instance.execute("SHOW TABLES IN orbit") == [("kept",)]


def test_a_start_right_after_the_supervisors_death_waits_for_the_old_server(
    instance: Instance, starters: list[subprocess.Popen[str]]
) -> None:
    """Two servers never open the same data: the new start lets the old server finish first."""
    starter = start_elsewhere(starters, instance)
    old = instance.pid
    starter.kill()
    starter.communicate()
    instance.start()
    assert instance.pid not in {old, None}
    assert instance.execute("SELECT 1") == [(1,)]


def test_a_temporary_instance_vanishes_with_its_supervisor(
    tmp_path: Path, starters: list[subprocess.Popen[str]]
) -> None:
    """A killed test run leaves neither a server nor its files."""
    instance = create(tmp_path / "temporary", chosen_flavour(), settings=SMALL)
    starter = start_elsewhere(starters, instance, Lifetime.TEMPORARY)
    assert kill_and_wait(starter, instance)
    deadline = time.monotonic() + 30
    while instance.home.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not instance.home.exists()


def test_a_killed_launcher_takes_the_server_along(instance: Instance) -> None:
    """Nothing that can be killed alone leaves a server behind."""
    instance.start()
    pid = instance.pid
    assert pid is not None
    launcher = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    subprocess.run(["kill", "-KILL", str(launcher)], check=True)
    deadline = time.monotonic() + 10
    while instance.is_running and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not instance.is_running


def test_a_supervised_instance_refuses_a_second_supervisor(
    instance: Instance, starters: list[subprocess.Popen[str]]
) -> None:
    """The message names the process that has it, and that one is undisturbed."""
    starter = start_elsewhere(starters, instance)
    with pytest.raises(InstanceBusy, match=f"in use by process {starter.pid}"):
        instance.start()
    assert instance.execute("SELECT 1") == [(1,)]


def test_a_detached_server_outlives_its_starter(
    instance: Instance, starters: list[subprocess.Popen[str]]
) -> None:
    """It is found again, used, and stopped by somebody else."""
    starter = start_elsewhere(starters, instance, Lifetime.DETACHED)
    pid = instance.pid
    starter.kill()
    starter.communicate()
    instance.start()
    assert instance.pid == pid
    assert instance.execute("SELECT 1") == [(1,)]
    instance.stop()
    assert not instance.is_running


def test_a_reused_process_id_is_not_mistaken_for_the_server(instance: Instance) -> None:
    """What was recorded before a crash of the machine names another process today."""
    instance.start()
    recorded = (instance.home / "process.json").read_text()
    instance.signal(signal.SIGKILL)
    instance.stop()
    own_pid = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        (instance.home / "process.json").write_text(json.dumps({**json.loads(recorded), "pid": own_pid.pid}))
        assert not instance.is_running
        instance.kill()
        assert own_pid.poll() is None
    finally:
        own_pid.kill()
        own_pid.communicate()


def test_traces_of_a_killed_server_do_not_stop_the_next(instance: Instance) -> None:
    """A stale lock that names a process id in use, as after a reboot, isn't believed."""
    instance.start()
    instance.kill()
    for trace in (Path(instance.socket + ".lock"), instance.home / "server.pid"):
        trace.write_text("1\n")
    instance.start()
    assert instance.execute("SELECT 1") == [(1,)]


def test_ctrl_c_in_the_terminal_does_not_reach_the_server(instance: Instance) -> None:
    """The server is in a session of its own: the supervisor decides when it stops."""
    instance.start()
    session = Path(f"/proc/{instance.pid}/stat").read_text().rpartition(")")[2].split()[3]
    mine = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[3]
    assert session != mine
    instance.signal(signal.SIGINT)
    assert instance.execute("SELECT 1") == [(1,)]
    instance.stop()
