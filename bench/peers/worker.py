"""The worker process of the comparison with other systems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from bench.jobs import HANDLER, VERSION, Job
from orbit_sdk import Execution, Worker


def make_worker(state: Path, *, slot: int, capacity: int, probe: Any) -> Worker:
    """Return a worker for what the adapter's driver wrote to `state`; `probe` is the harness's own."""
    token, queue, url, *worker_urls = state.read_text(encoding="ascii").split()
    worker = Worker(
        url, token, queues=[queue], capacity=capacity, worker_url=worker_urls[slot % len(worker_urls)]
    )

    @worker.handler(HANDLER, version=VERSION)
    async def noop(_execution: Execution[Job], job: Job) -> None:
        began = probe.start(job)
        if job["s"]:
            await trio.sleep(job["s"] / 1_000)
            probe.span(job, began)

    return worker
