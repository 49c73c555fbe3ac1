"""The user's commands against a running Orbit: text for people, JSON for programs, exit codes for scripts."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.orbit_up import clean_environment, command, orbit_up, prepare_home


@dataclass(frozen=True, slots=True)
class Cli:
    """Runs `orbit` in the home of a running Orbit."""

    home: Path

    def __call__(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments),
            env=clean_environment(ORBIT_HOME=str(self.home), **environment),
            capture_output=True,
            text=True,
            check=False,
        )

    def json(self, *arguments: str) -> Any:
        """Run with `--json` and return the answer; the command must succeed."""
        done = self(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """One running Orbit for this file; commands find it by its home."""
    home = tmp_path_factory.mktemp("cli") / "home"
    prepare_home(home)
    with orbit_up(home):
        yield Cli(home)


@pytest.fixture
def queue(cli: Cli) -> str:
    """The name of a fresh queue."""
    name = f"q-{secrets.token_hex(4)}"
    cli.json("queues", "create", name, "--max-concurrency", "5")
    return name


def test_queues(cli: Cli, queue: str) -> None:
    """Create, list, show by name and id, pause and resume; a taken name is refused with exit code 1."""
    assert queue in {row["name"] for row in cli.json("queues", "list")["queues"]}
    shown = cli.json("queues", "show", queue)
    assert shown == cli.json("queues", "show", shown["id"])
    assert (shown["max_concurrency"], shown["revision"], shown["unfinished_tasks"]) == (5, "1", "0")
    assert cli.json("queues", "pause", queue, "--reason", "test")["paused"] is True
    assert cli.json("queues", "resume", queue, "--reason", "test")["revision"] == "3"
    refused = cli("queues", "create", queue)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: STATE_CONFLICT: ")
    assert json.loads(cli("queues", "create", queue, "--json").stdout)["error"]["code"] == "STATE_CONFLICT"


def test_a_payload_travels_byte_for_byte(cli: Cli, queue: str) -> None:
    """Numbers keep their digits on the way there and back."""
    payload = '{"n": 1.10, "big": 12345678901234567890123, "e": 1e400}'
    accepted = cli.json("tasks", "submit", "--queue", queue, "--handler", "h", "--payload", payload)
    shown = cli("tasks", "show", accepted["id"], "--json").stdout
    assert f'"payload":{payload}' in shown
    assert accepted["state"] == "WAITING"
    assert accepted["revision"] == "1"


def test_cancel_list_and_watch(cli: Cli, queue: str) -> None:
    """A cancelled task is listed as such, and watching it ends with exit code 1, since it didn't succeed."""
    submit = (
        "tasks",
        "submit",
        "--queue",
        queue,
        "--handler",
        "h",
        "--payload",
        "{}",
        "--concurrency-key",
        "k",
    )
    accepted = cli.json(*submit)
    assert cli.json("tasks", "cancel", accepted["id"], "--reason", "test")["state"] == "CANCELLED"
    (listed,) = cli.json("tasks", "list", "--queue", queue, "--state", "CANCELLED")["tasks"]
    assert (listed["id"], listed["concurrency_key"]) == (accepted["id"], "k")
    watched = cli("tasks", "watch", accepted["id"])
    assert watched.returncode == 1
    assert "CANCELLED" in watched.stdout


def test_the_same_idempotency_key_is_the_same_task(cli: Cli, queue: str) -> None:
    """An unknown outcome is settled by repeating the command with its key."""
    submit = (
        "tasks",
        "submit",
        "--queue",
        queue,
        "--handler",
        "h",
        "--payload",
        "{}",
        "--idempotency-key",
        "once",
    )
    assert cli.json(*submit)["id"] == cli.json(*submit)["id"]
    other = cli(*submit[:-4], "--payload", "[]", "--idempotency-key", "once")
    assert other.returncode != 0


def test_a_file_is_accepted_once(cli: Cli, queue: str, tmp_path: Path) -> None:
    """Seventy lines in batches; repeated, nothing is accepted twice; two equal lines are two tasks."""
    file = tmp_path / "jobs.ndjson"
    lines = [json.dumps({"handler": "h", "payload": {"i": index // 2}}) for index in range(70)]
    file.write_text("\n".join(lines) + "\n")
    submit = ("tasks", "submit", "--queue", queue, "--file", str(file))
    assert cli.json(*submit) == {"counts": {"ACCEPTED": 70}, "refused": []}
    assert cli.json(*submit) == {"counts": {"DUPLICATE": 70}, "refused": []}
    assert cli.json("queues", "show", queue)["unfinished_tasks"] == "70"
    file.write_text('{"handler": "h", "payload": {}, "nonsense": 1}\n')
    wrong = cli(*submit)
    assert wrong.returncode == 2
    assert "line 1" in wrong.stderr


def test_doctor(cli: Cli) -> None:
    """All is well; an unknown variable is named; a database that isn't there is a problem with exit code 1."""
    findings = cli.json("doctor")["findings"]
    assert {finding["state"] for finding in findings} == {"ok"}
    assert {finding["check"] for finding in findings} == {"settings", "database", "schema", "api"}
    checked = {
        finding["check"]: finding["text"] for finding in cli.json("doctor", "--invariants")["findings"]
    }
    assert "invariants hold" in checked["invariants"]
    assert "did you mean ORBIT_TOKEN?" in cli("doctor", ORBIT_TOKENN="x").stdout
    gone = cli("doctor", ORBIT_MYSQL_DSN="mysql://nobody:secret@127.0.0.1:1/orbit")
    assert gone.returncode == 1
    assert "problem  database" in gone.stdout
    assert "secret" not in gone.stdout + gone.stderr


def test_what_is_wrong_is_one_line(cli: Cli, tmp_path: Path) -> None:
    """No credential and wrong usage: 2. No server and unknown ids: 1. Never a traceback."""
    no_credential = cli("queues", "list", ORBIT_CREDENTIALS_FILE=str(tmp_path / "none.json"))
    assert no_credential.returncode == 2
    unreachable = cli("queues", "list", ORBIT_URL="http://127.0.0.1:1")
    assert unreachable.returncode == 1
    unknown = cli("tasks", "show", "0" * 32)
    assert unknown.returncode == 1
    bad_json = cli("tasks", "submit", "--queue", "default", "--handler", "h", "--payload", "{")
    assert bad_json.returncode == 2
    assert str(tmp_path / "none.json") in no_credential.stderr
    submit = ("tasks", "submit", "--queue", "default", "--handler", "h", "--payload")
    bad_key = cli(*submit, "1", "--idempotency-key", "a b")
    bad_token = cli("queues", "list", ORBIT_TOKEN="a\nb")
    bad_bytes = cli("queues", "show", "\udcff")
    bad_payload = cli(*submit, '"\udcff"')
    assert [done.returncode for done in (bad_key, bad_token, bad_bytes, bad_payload)] == [1, 2, 1, 2]
    wrong = (no_credential, unreachable, unknown, bad_json, bad_key, bad_token, bad_bytes, bad_payload)
    for done in wrong:
        assert "Traceback" not in done.stderr
        assert done.stderr.splitlines()[-1].lower().startswith("error: ")
