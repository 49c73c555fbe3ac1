"""A worker as users write them, for tests: handler `work` does what its payload says and notes that it ran.

Payload: `ms` to take (default 0), `busy` (take it computing in a thread, optional), `raise` (an error type's name,
optional). Every execution appends one line to the
file TEST_EFFECTS when it starts and one when it ends; a resource's own log, outside Orbit.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import trio

from orbit_sdk import Execution, Retry, Unknown, Worker

OUTCOMES = {"Retry": Retry, "Unknown": Unknown}


def note(event: str, e: Execution[Any]) -> None:
    """Append one line with one write, so that lines of several processes don't mix."""
    line = {
        "event": event,
        "task": e.task.id,
        "attempt": e.attempt_id,
        "epoch": e.epoch,
        "token": e.concurrency_token,
        "pid": os.getpid(),
        "at": time.time(),
    }
    with open(os.environ["TEST_EFFECTS"], "ab", buffering=0) as file:  # noqa: PTH123
        file.write(json.dumps(line).encode() + b"\n")


def compute(seconds: float) -> None:
    """Keep a processor busy, as a handler that never waits."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1_000))


async def main() -> None:
    """Run until told to stop; say on standard error when the first session is open."""
    worker = Worker(
        os.environ["ORBIT_URL"],
        os.environ["ORBIT_TOKEN"],
        queues=[os.environ["TEST_QUEUE"]],
        capacity=int(os.environ["TEST_CAPACITY"]),
        name=os.environ["TEST_NAME"] or None,
        grace_seconds=1,
    )

    @worker.handler("work", version="1")
    async def work(e: Execution[Any]) -> dict[str, int]:
        seconds = e.payload.get("ms", 0) / 1000
        # From before the note: a worker that is frozen as soon as somebody reads it wakes up with its time gone.
        ends_at = trio.current_time() + seconds
        note("start", e)
        if e.payload.get("busy"):
            await trio.to_thread.run_sync(compute, seconds)
        else:
            await trio.sleep_until(ends_at)
        note("end", e)
        if "raise" in e.payload:
            raise OUTCOMES[e.payload["raise"]]("as asked")
        return {"epoch": e.epoch}

    async with trio.open_nursery() as nursery:
        await nursery.start(worker.run)
        print(json.dumps({"event": "connected"}), file=sys.stderr, flush=True)


if __name__ == "__main__":
    trio.run(main)
