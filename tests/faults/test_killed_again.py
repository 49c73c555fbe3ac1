"""Any process, the database too, killed at any moment under load, again and again: nothing that was promised is lost
and everything goes on by itself. `ORBIT_SOAK=1` makes it long."""

from __future__ import annotations

import itertools
import os
import random
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import pytest

from orbit.localdb.instance import Instance
from tests.support.eventually import eventually
from tests.support.invariants import assert_sound, lapsed_attempts, stuck_tasks
from tests.support.processes import Process, Site
from tests.support.pulse import Pulse
from tests.support.rawclient import RawClient, submit_body
from tests.support.tenants import Tenant

LOOP_SECONDS = 600.0 if os.environ.get("ORBIT_SOAK") else 0.0
# After a long loop thousands of tasks wait for their keys' turn.
WORK_OFF_SECONDS = 200.0 if os.environ.get("ORBIT_SOAK") else 60.0
CALLERS = 3
LEASE_SECONDS = 2
RETRIED = {"on_unknown": "RETRY", "retry": {"max_attempts": 100, "initial_ms": 50, "max_ms": 200}}


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2].partition("/")[0])


@dataclass(slots=True)
class Crew:
    """Everything that can be killed, and how each is started again where it was."""

    site: Site
    database: Instance
    home: Tenant
    processes: dict[str, Process] = field(default_factory=dict)
    starters: dict[str, Callable[[], Process]] = field(default_factory=dict)

    def start(self) -> str:
        """Start two of each daemon, and a worker at either dispatcher; return the API's address."""
        site = self.site
        self.processes["api"], address = site.api()
        self.starters["api"] = lambda: site.api(port=port_of(address))[0]
        for n in range(2):
            self.processes[f"dispatch {n}"], url = site.dispatch()
            self.starters[f"dispatch {n}"] = lambda url=url: site.dispatch(port=port_of(url))[0]  # type: ignore[misc]
            self.starters[f"worker {n}"] = lambda url=url: site.worker(self.home, url, capacity=8)  # type: ignore[misc]
            self.starters[f"recover {n}"] = site.recover
        for name in self.starters.keys() - self.processes.keys():
            self.processes[name] = self.starters[name]()
        return address

    def kill(self, name: str) -> None:
        if name == "database":
            self.database.kill()
        else:
            self.processes[name].kill()

    def revive(self, name: str) -> None:
        if name == "database":
            self.database.start()
        else:
            self.processes[name] = self.starters[name]()

    def targets(self) -> list[str]:
        """Return all names, in an order of chance."""
        names = ["database", *self.starters]
        random.shuffle(names)
        return names


class Callers:
    """Careful clients that submit until told to stop, and remember each answer. Use as a context manager."""

    def __init__(self, address: str, home: Tenant) -> None:
        self.answers: dict[str, str] = {}
        self.failures: list[BaseException] = []
        self._client = RawClient(address, home.token_text, timeout=5)
        self._queue_id = home.queue_id
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._submit, daemon=True) for _ in range(CALLERS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _submit(self) -> None:
        try:
            for n in itertools.count():
                if self._stop.wait(0.02):
                    return
                key = secrets.token_hex(8)
                body = submit_body(self._queue_id, payload={"ms": 20}, **RETRIED)
                if n % 2:
                    body["concurrency_key"] = f"k{n % 6}"
                reply = self._client.ask_patiently("POST", "/v1/tasks", body, key=key, attempts=1_000)
                assert reply.status in (200, 201), reply.body
                self.answers[key] = reply.json["data"]["task"]["id"]
        except BaseException as error:  # noqa: BLE001 - raised in the test's thread
            self.failures.append(error)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_anything_is_killed_again_and_again_f10_f20(
    site: Site, victim: Instance, home: Tenant, direct: Pulse
) -> None:
    """F1 F9 F10 F11 F13 F20 I8 I10: each of the processes and the database is killed at least once, one after another;
    every acknowledged submit is there once and ends once, and work goes on after each kill without a hand."""
    crew = Crew(site, victim, home)
    end = time.monotonic() + LOOP_SECONDS
    with Callers(crew.start(), home) as callers:
        eventually(lambda: site.executions("end"), within=20)
        while True:
            for name in crew.targets():
                crew.kill(name)
                time.sleep(random.uniform(0, 0.2))  # others work, or fail to, meanwhile
                crew.revive(name)
                before = len(callers.answers)
                eventually(lambda before=before: len(callers.answers) > before, within=30)  # type: ignore[misc]
            if time.monotonic() >= end:
                break
    assert callers.failures == []
    eventually(lambda: direct.usage().unfinished == 0, within=WORK_OFF_SECONDS, pause=0.2)
    tasks = direct.rows("tasks", queue_id=home.queue_id)
    assert {row.task_id.hex() for row in tasks} == set(callers.answers.values())
    assert len(tasks) == len(callers.answers)
    assert {row.state for row in tasks} == {"SUCCEEDED"}
    runs = [(line["task"], line["epoch"]) for line in site.executions()]
    assert len(runs) == len(set(runs)), "one run a Start"
    run = direct.session.run
    assert run(lambda tx: lapsed_attempts(tx, home.application_id, seconds=LEASE_SECONDS)) == []
    assert run(lambda tx: stuck_tasks(tx, home.application_id, seconds=LEASE_SECONDS)) == []
    assert_sound(victim.dsn())
