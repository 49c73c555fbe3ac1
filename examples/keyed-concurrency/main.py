"""One object, two queues, two workers: the key lets one task at a time touch the object, and the token fences it.

Two tasks in two queues carry the same concurrency key. Orbit lets only one of them hold the key, and gives every
holder a larger token. The resource keeps the largest token it has seen and refuses a smaller one, so that a writer
from the past does no harm even if it wakes up late.

Run against a live Orbit: ORBIT_URL, and ORBIT_TOKEN or ORBIT_CREDENTIALS_FILE. Queues and tasks stay as history.
"""

from __future__ import annotations

import secrets
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

import trio

from orbit_sdk import Client, CreateQueue, Execution, Queue, SubmitTask, TaskSummary, Worker, repeat

LIMIT_SECONDS = 20.0
CLEANUP_SECONDS = 3.0
WORK_SECONDS = 0.1
HANDLER = "object.update"


class StaleTokenError(Exception):
    """A write with a token that is older than one already seen."""


@dataclass
class Resource:
    """A stand-in for a database row: check token, deduplicate and write in one atomic step."""

    highest_token: int = 0
    writes: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, operation_id: str, token: int) -> None:
        """Write once per operation. Raises StaleTokenError for a token below the highest (an equal one passes)."""
        with self._lock:
            if token < self.highest_token:
                raise StaleTokenError(f"token {token} is older than {self.highest_token}")
            self.highest_token = token
            self.writes.setdefault(operation_id, token)

    def rejects(self, operation_id: str, token: int) -> bool:
        """Whether a write is refused as stale."""
        try:
            self.write(operation_id, token)
        except StaleTokenError:
            return True
        return False


def build_worker(client: Client, queue: Queue, resource: Resource) -> Worker:
    """A worker on one queue whose handler writes to the shared resource."""
    worker = Worker(client, queues=[queue.id], capacity=4, grace_seconds=CLEANUP_SECONDS)

    @worker.handler(HANDLER, version="v1", effect="FENCED")
    async def update(e: Execution[Any]) -> dict[str, bool]:
        await trio.sleep(WORK_SECONDS)
        assert e.concurrency_token is not None
        resource.write(e.task.id, e.concurrency_token)
        return {"written": True}

    return worker


async def create_queue(client: Client, name: str) -> Queue:
    """Create a queue; a lost answer is asked for again under the same key."""
    command = CreateQueue(name=name, max_concurrency=10, rate_per_second=1000)
    result = await repeat(
        lambda: client.create_queue(command, idempotency_key=f"create-{name}"), deadline=LIMIT_SECONDS
    )
    return result.queue


async def submit(client: Client, queue: Queue, concurrency_key: str) -> TaskSummary:
    """Submit one task for the object; a lost answer is asked for again under the same key."""
    command = SubmitTask(
        queue_id=queue.id,
        handler=HANDLER,
        handler_version="v1",
        payload_version="v1",
        payload={"object": concurrency_key},
        concurrency_key=concurrency_key,
    )
    key = f"submit-{queue.name}"
    result = await repeat(lambda: client.submit(command, idempotency_key=key), deadline=LIMIT_SECONDS)
    return result.task


async def wait_until_succeeded(client: Client, tasks: list[TaskSummary]) -> None:
    """Return when all tasks have SUCCEEDED. Raises RuntimeError when one ends otherwise."""
    for task in tasks:
        ended = await client.wait_until_ended(task.id)
        if ended.state != "SUCCEEDED":
            raise RuntimeError(f"task {task.id} ended as {ended.state}")


async def read_tokens(client: Client, tasks: list[TaskSummary]) -> list[int]:
    """The tokens of all attempts in the order in which they were started."""
    attempts = [attempt for task in tasks async for attempt in client.iterate_attempts(task.id)]
    started = [(each.started_at, each.concurrency_token or 0) for each in attempts if each.started_at]
    return [token for _, token in sorted(started)]


async def cancel_unfinished(client: Client, tasks: list[TaskSummary]) -> None:
    """After a failure: leave nothing behind that would wait for ever. Bounded, and no error of its own."""
    with trio.move_on_after(CLEANUP_SECONDS, shield=True):
        for task in tasks:
            try:
                await client.cancel_task(
                    task.id, idempotency_key=f"cancel-{task.id}", reason="example failed"
                )
            except Exception as error:  # noqa: BLE001 - the first failure is the one to report
                print(f"clean-up: {error}", file=sys.stderr)


async def run() -> list[str]:
    """Run the example; its verdict lines."""
    name = f"keyed-concurrency-{secrets.token_hex(6)}"
    resource = Resource()
    tasks: list[TaskSummary] = []
    with trio.fail_after(LIMIT_SECONDS):
        async with Client.from_env() as client:
            try:
                queues = [await create_queue(client, f"{name}-{letter}") for letter in "ab"]
                for queue in queues:
                    tasks.append(await submit(client, queue, concurrency_key=f"object:{name}"))
                workers = [build_worker(client, queue, resource) for queue in queues]
                async with trio.open_nursery() as nursery:
                    for worker in workers:
                        await nursery.start(worker.run)
                    await wait_until_succeeded(client, tasks)
                    for worker in workers:
                        worker.drain()
                tokens = await read_tokens(client, tasks)
                has_drained = all(worker.has_drained for worker in workers)
            except BaseException:
                await cancel_unfinished(client, tasks)
                raise
    is_increasing = len(tokens) == 2 and 0 < tokens[0] < tokens[1]
    is_as_written = list(resource.writes.values()) == tokens
    first_task = next(iter(resource.writes))
    is_rejected = resource.rejects(first_task, tokens[0])
    stale, drained = text(is_rejected), text(has_drained)
    return [
        f"queues={len(queues)} completed={len(tasks)} tokens_increasing={text(is_increasing and is_as_written)}",
        f"resource_writes={len(resource.writes)} stale_write_rejected={stale} worker_drained={drained}",
    ]


def text(value: bool) -> str:  # noqa: FBT001 - a word for a truth value
    """How the verdict writes a truth value."""
    return "true" if value else "false"


def reason(error: BaseException) -> str:
    """The first cause in a group of errors, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, trio.TooSlowError):
        return f"not done within {LIMIT_SECONDS:.0f} s"
    return f"{type(error).__name__}: {error}"


def main() -> int:
    """Print the verdict; 0 only if everything is as promised."""
    try:
        lines = trio.run(run)
    except Exception as error:  # noqa: BLE001 - one clear line instead of a traceback
        print(f"keyed-concurrency failed: {reason(error)}", file=sys.stderr)
        return 1
    print("\n".join(lines))
    return 1 if "false" in " ".join(lines) else 0


if __name__ == "__main__":
    sys.exit(main())
