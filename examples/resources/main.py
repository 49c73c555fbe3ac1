"""Back-pressure, receipts and a rate: a full queue refuses, a repeat is recognised, Starts keep to one a second.

A paused queue with room for two takes two tasks and refuses the third. The first submit, repeated, gives back its
receipt and no second task. Cancelling the first makes room: the refused submit is accepted as it was, under its
original key. Once resumed, the two tasks run at one Start a second.

Run against a live Orbit: ORBIT_URL, and ORBIT_TOKEN or ORBIT_CREDENTIALS_FILE. Queue and tasks stay as history.
"""

from __future__ import annotations

import secrets
import sys
from typing import Any

import trio

from orbit_sdk import (
    APIError,
    Client,
    ConfigureQueue,
    CreateQueue,
    Execution,
    Queue,
    SubmitTask,
    Task,
    TaskResult,
    Worker,
    repeat,
)

LIMIT_SECONDS = 20.0
CLEANUP_SECONDS = 3.0
HANDLER = "resource.work"


class Scenario:
    """The commands of one run: every submit has its key from the start, and keeps it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.name = f"resources-{secrets.token_hex(6)}"
        self.accepted: dict[int, str] = {}

    async def create_queue(self) -> Queue:
        """A queue with room for two tasks and one Start a second."""
        command = CreateQueue(name=self.name, max_concurrency=2, rate_per_second=1, max_unfinished_tasks=2)
        result = await repeat(
            lambda: self.client.create_queue(command, idempotency_key=f"create-{self.name}"),
            deadline=LIMIT_SECONDS,
        )
        return result.queue

    async def set_paused(self, queue: Queue, *, paused: bool) -> Queue:
        """Replace the controls of the queue, if nobody else has meanwhile."""
        command = ConfigureQueue(
            expected_revision=queue.revision,
            reason="example: pause" if paused else "example: resume",
            paused=paused,
            max_concurrency=queue.max_concurrency,
            rate_per_second=queue.rate_per_second,
            max_unfinished_tasks=queue.max_unfinished_tasks,
        )
        key = f"configure-{self.name}-{queue.revision}"
        result = await repeat(
            lambda: self.client.configure_queue(queue.id, command, idempotency_key=key),
            deadline=LIMIT_SECONDS,
        )
        return result.queue

    async def submit(self, queue: Queue, number: int) -> TaskResult:
        """Submit task `number`: the same number is always the same command under the same key."""
        command = SubmitTask(
            queue_id=queue.id,
            handler=HANDLER,
            handler_version="v1",
            payload_version="v1",
            payload={"number": number},
        )
        result = await self.client.submit(command, idempotency_key=f"submit-{self.name}-{number}")
        self.accepted[number] = result.task.id
        return result

    async def submit_until_answered(self, queue: Queue, number: int) -> TaskResult:
        """Submit task `number`, repeating exactly that until there is an answer."""
        return await repeat(lambda: self.submit(queue, number), deadline=LIMIT_SECONDS)

    async def cancel(self, number: int) -> None:
        """Cancel task `number`."""
        task_id = self.accepted[number]
        await repeat(
            lambda: self.client.cancel_task(task_id, idempotency_key=f"cancel-{task_id}"),
            deadline=LIMIT_SECONDS,
        )

    async def clean_up(self) -> None:
        """After a failure: leave nothing behind that would wait for ever. Bounded, and no error of its own."""
        with trio.move_on_after(CLEANUP_SECONDS, shield=True):
            for task_id in self.accepted.values():
                try:
                    await self.client.cancel_task(task_id, idempotency_key=f"cancel-{task_id}")
                except Exception as error:  # noqa: BLE001 - the first failure is the one to report
                    print(f"clean-up: {error}", file=sys.stderr)


async def work_off(scenario: Scenario, queue: Queue, numbers: list[int]) -> tuple[list[Task], bool]:
    """Run a worker until these tasks have ended; the tasks, and whether the worker drained."""
    worker = Worker(scenario.client, queues=[queue.name], capacity=2, grace_seconds=CLEANUP_SECONDS)

    @worker.handler(HANDLER, version="v1", effect="PURE")
    async def work(e: Execution[Any]) -> dict[str, int]:
        return {"number": e.payload["number"]}

    async with trio.open_nursery() as nursery:
        await nursery.start(worker.run)
        tasks = [await scenario.client.wait_until_ended(scenario.accepted[number]) for number in numbers]
        worker.drain()
    return tasks, worker.has_drained


async def play(scenario: Scenario) -> list[str]:
    """The scenario; its verdict lines."""
    queue = await scenario.set_paused(await scenario.create_queue(), paused=True)
    first = await scenario.submit_until_answered(queue, 1)
    await scenario.submit_until_answered(queue, 2)
    try:
        await scenario.submit(queue, 3)
    except APIError as refusal:
        lines = [f"backpressure={refusal.code} http={refusal.status}"]
    else:
        raise RuntimeError("the full queue accepted a third task")
    repeated = await scenario.submit_until_answered(queue, 1)
    is_duplicate = repeated.deduplicated and repeated.task.id == first.task.id
    await scenario.cancel(1)
    third = await scenario.submit_until_answered(queue, 3)
    is_retried = not third.deduplicated
    lines.append(f"duplicate={text(is_duplicate)} rejected_request_retried={text(is_retried)}")
    await scenario.set_paused(queue, paused=False)
    tasks, has_drained = await work_off(scenario, queue, [2, 3])
    for task in tasks:
        lines.append(f"task={task.id} state={task.state} attempts={task.attempts_used}")
    queue = await scenario.client.get_queue(queue.id)
    usage = f"unfinished={queue.unfinished_tasks} rate_per_second={queue.rate_per_second}"
    return [*lines, f"{usage} worker_drained={text(has_drained)}"]


async def run() -> list[str]:
    """Run the example within its time limit."""
    with trio.fail_after(LIMIT_SECONDS):
        async with Client.from_env() as client:
            scenario = Scenario(client)
            try:
                return await play(scenario)
            except BaseException:
                await scenario.clean_up()
                raise


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
        print(f"resources failed: {reason(error)}", file=sys.stderr)
        return 1
    print("\n".join(lines))
    is_right = (
        lines[0] == "backpressure=QUEUE_FULL http=429"
        and "false" not in " ".join(lines)
        and all(line.endswith("state=SUCCEEDED attempts=1") for line in lines[2:4])
        and lines[4].startswith("unfinished=0 rate_per_second=1 ")
    )
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
