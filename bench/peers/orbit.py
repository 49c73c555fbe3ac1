"""Orbit for the harness that measures durable job systems side by side: linked there as adapters/orbit.py.

The harness reads the class attributes with any Python; everything else runs in `python`, with this checkout's modules.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import base  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from bench.stack import Stack

REPOSITORY = Path(__file__).resolve().parents[2]
CALLERS = 8
ANALYZED = ("tasks", "task_payloads", "attempts", "receipts", "lanes", "concurrency_keys", "state_events")
if str(REPOSITORY) not in sys.path:
    sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "sdk")]


class A(base.Adapter):  # type: ignore[misc]
    """The harness's interface over Orbit's SDK; BENCH_ORBIT_DISPATCHERS (default 1) is how many dispatchers run."""

    name = "orbit"
    title = "orbit (MySQL)"
    backend = "mysql"
    python = os.environ.get("BENCH_ORBIT_PYTHON") or str(REPOSITORY / ".venv" / "bin" / "python")
    concurrency = 256
    bulk_batch = 32
    has_bulk = True
    has_keys = True
    keys_note = "concurrency_key: 1 at a time per key, across queues and processes, with fencing tokens"
    settings = (
        "MySQL with innodb_flush_log_at_trx_commit=1, sync_binlog=1, binary log on, 512 MB buffer pool; orbit-api,"
        " orbit-dispatch, orbit-recover as processes whose CPU counts as the server's; HTTP and WebSocket clients;"
        " bulk: 8 callers with batches of 32; worker capacity 256"
    )

    def setup(self) -> None:
        """Start a fresh database and the daemons; they end with this process."""
        environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'sdk'}"}
        dispatchers = os.environ.get("BENCH_ORBIT_DISPATCHERS", "1")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.stack", dispatchers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        import msgspec

        from bench.peers.costs import Costs
        from bench.stack import Stack
        from orbit.store.dsn import parse_dsn
        from orbit.store.session import Reader, Session

        assert self.process.stdout is not None
        self.stack: Stack = msgspec.json.decode(self.process.stdout.readline(), type=Stack)
        pid_file = os.environ.get("BENCH_MYSQL_PIDFILE")
        if pid_file:
            Path(pid_file).write_text(f"{self.stack.root}\n", encoding="ascii")
        self.dsn = parse_dsn(self.stack.dsn)
        self.session, self.reader = Session(self.dsn), Reader(self.dsn)
        self.costs = Costs(self.stack.pids, Path(base.HOME) / "run" / "orbit.cpu.jsonl")
        self.reset()

    def reset(self) -> None:
        """Empty the tables under the living daemons; the next jobs are a new application's."""
        from bench.tenants import make_tenant, wipe

        self.costs.close()
        wipe(self.dsn)
        self.tenant = make_tenant(self.session)
        self.accepted = 0
        state = f"{self.tenant.token_text}\n{self.tenant.queue}\n{self.stack.url}\n"
        _state_file().write_text(state + "\n".join(self.stack.worker_urls) + "\n", encoding="ascii")

    def set_run_dir(self, path: str) -> None:
        super().set_run_dir(path)
        # All jobs of a measurement are there before its workers start.
        self.accepted = self.accepted or self._unfinished()
        self.costs.begin(self.accepted - self._unfinished())

    def submit_for(self, seconds: float, concurrency: int) -> tuple[int, float]:
        from bench.load import submit_for

        rate = self._call(submit_for, seconds=seconds, callers=concurrency)
        return rate.tasks, rate.seconds

    def submit_bulk(self, payloads: list[dict[str, Any]]) -> float:
        return self._send(payloads, lambda _: None)

    def submit_keyed(self, payloads: list[dict[str, Any]]) -> None:
        self._send(payloads, lambda payload: f"key-{payload['k']}")

    def submit_paced(self, n: int, interval: float) -> None:
        from bench.load import submit_paced

        self._call(submit_paced, tasks=n, interval=interval)

    def fill(self, n: int) -> None:
        """Submit one job and copy its rows: task, payload, receipt; counters and the lane follow."""
        from bench.seed import fill

        fill(self.session, self.tenant, n)

    def analyze(self) -> None:
        self.session.run(lambda tx: [tx.rows(f"ANALYZE TABLE {name}") for name in ANALYZED])

    def done_count(self) -> int:
        """Return how many jobs the store counts as ended."""
        done = self.accepted - self._unfinished()
        self.costs.note(done)
        return done

    def worker(self, opts: dict[str, Any]) -> None:
        import trio

        from bench.peers.worker import make_worker

        capacity, slot = opts.get("concurrency", self.concurrency), opts.get("slot", 0)
        worker = make_worker(_state_file(), slot=slot, capacity=capacity, probe=base.PROBE)
        base.wait_go()
        trio.run(worker.run)

    def _send(self, payloads: list[dict[str, Any]], key: Any) -> float:
        from bench.load import submit_batches

        seconds: float = self._call(submit_batches, payloads, callers=CALLERS, key=key).seconds
        return seconds

    def _call(self, function: Any, *arguments: Any, **options: Any) -> Any:
        import trio

        from bench.load import Target

        target = Target(self.stack.url, self.tenant.token_text, self.tenant.queue)
        return trio.run(partial(function, target, *arguments, **options))

    def _unfinished(self) -> int:
        from bench.tenants import unfinished

        return unfinished(self.reader, self.tenant.queue_id)


def _state_file() -> Path:
    """How worker processes learn where to connect."""
    return Path(base.HOME) / "run" / "orbit.state"
