"""A worker process that does nothing per task. Usage: python -m bench.worker JSON.

It says `ready` once it has been imported, waits for a line, and works until SIGTERM.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import trio

from bench.jobs import HANDLER, VERSION, Job
from bench.probe import Probe
from orbit_sdk import Client, Execution, Worker


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`capacity` is how many attempts a worker may hold; `workers` as many workers share the process."""

    url: str
    token: str
    worker_url: str
    queue: str
    capacity: int
    probe: str
    workers: int = 1


def main() -> None:
    options = msgspec.json.decode(sys.argv[1], type=WorkerOptions)
    probe = Probe(Path(options.probe))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    trio.run(_work, options, probe)


async def _work(options: WorkerOptions, probe: Probe) -> None:
    async with Client(options.url, options.token) as client, trio.open_nursery() as nursery:
        for _ in range(options.workers):
            await nursery.start(_worker(client, options, probe).run)
        sys.stdout.write("connected\n")
        sys.stdout.flush()


def _worker(client: Client, options: WorkerOptions, probe: Probe) -> Worker:
    worker = Worker(client, queues=[options.queue], capacity=options.capacity, worker_url=options.worker_url)

    @worker.handler(HANDLER, version=VERSION)
    async def noop(_execution: Execution[Job], payload: Job) -> None:
        probe.start(payload["t"])

    return worker


if __name__ == "__main__":
    main()
