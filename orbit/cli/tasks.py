"""`orbit tasks`: submit, show, list, watch and cancel."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Any, Final

import click
import trio

from orbit.cli.client import call, exact_json, fail, find_queue, show, wire
from orbit.cli.submit_file import submit_file
from orbit.domain.states import TERMINAL, TaskState
from orbit.domain.wire import format_time
from orbit.runtime.console import json_option
from orbit_sdk import Attempt, Client, RetryPolicy, SubmitTask, Task, TaskFilter, TaskSummary

WATCH_SECONDS: Final = 0.5

EPILOG = """
\b
Examples:
  orbit tasks submit --queue default --handler hello --payload '{"to": "you"}'
  orbit tasks submit --queue default --file jobs.ndjson
  orbit tasks list --queue default --state NEEDS_REVIEW
  orbit tasks watch 018f2c6e9d0b7a3c5e1f20a4b6c8d0e2
  orbit tasks cancel 018f2c6e9d0b7a3c5e1f20a4b6c8d0e2 --reason "not needed"

A line of jobs.ndjson is an object with the fields of a submit; what it leaves out comes from the options, such as
{"handler": "hello", "payload": {"to": "you"}}. Repeat the command after a failure: every line is accepted once.
"""


@click.group(epilog=EPILOG)
def tasks() -> None:
    """Tasks of a queue. QUEUE is a name or an id."""


@tasks.command()
@click.option("--queue", required=True)
@click.option("--handler", help="Name of the handler.")
@click.option("--handler-version", default="1", show_default=True)
@click.option("--payload-version", default="1", show_default=True)
@click.option("--payload", help="JSON; - reads it from standard input. Sent byte for byte.")
@click.option(
    "--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="One task a line (NDJSON)."
)
@click.option("--business-key", help="For tracing only.")
@click.option("--concurrency-key", help="One task at a time per key, across the namespace's queues.")
@click.option("--priority", type=click.IntRange(0, 9))
@click.option("--delay-ms", type=click.IntRange(0))
@click.option("--timeout-ms", type=click.IntRange(1), help="Total, waiting included.")
@click.option("--attempt-timeout-ms", type=click.IntRange(1))
@click.option("--max-attempts", type=click.IntRange(1, 100))
@click.option("--on-unknown", type=click.Choice(["REVIEW", "RETRY"]))
@click.option("--idempotency-key", help="Repeat an unknown outcome under its key. Default: a new one.")
@json_option
def submit(
    *,
    queue: str,
    payload: str | None,
    file: Path | None,
    max_attempts: int | None,
    idempotency_key: str | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Submit one task, or one for each line of a file."""
    retry = None if max_attempts is None else RetryPolicy(max_attempts=max_attempts)
    if file is not None:
        if payload is not None or idempotency_key is not None:
            raise click.UsageError("--file goes with neither --payload nor --idempotency-key")
        submit_file(file, queue, {**fields, "retry": retry}, as_json=as_json)
        return
    if fields["handler"] is None or payload is None:
        raise click.UsageError("give --handler and --payload, or --file")
    body = exact_json(sys.stdin.read() if payload == "-" else payload, "--payload")
    key = idempotency_key or secrets.token_hex(16)

    async def work(client: Client) -> TaskSummary:
        command = SubmitTask(queue_id=await find_queue(client, queue), payload=body, retry=retry, **fields)
        return (await client.submit(command, idempotency_key=key)).task

    accepted = call(work, as_json=as_json)
    show(wire(accepted), _line(accepted), as_json=as_json)


@tasks.command(name="show")
@click.argument("task_id")
@json_option
def show_(*, task_id: str, as_json: bool) -> None:
    """Show one task with payload, output and attempts."""

    async def work(client: Client) -> tuple[Task, list[Attempt]]:
        return await client.get_task(task_id), [a async for a in client.iterate_attempts(task_id)]

    task, attempts = call(work, as_json=as_json)
    data = {**wire(task), "attempts": [wire(attempt) for attempt in attempts]}
    show(data, "\n".join([_line(task), *_details(task), *map(_attempt_line, attempts)]), as_json=as_json)


@tasks.command(name="list")
@click.option("--queue", required=True)
@click.option("--state", type=click.Choice([state.value for state in TaskState]))
@click.option("--business-key")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many.")
@json_option
def list_(*, queue: str, state: str | None, business_key: str | None, limit: int, as_json: bool) -> None:
    """List a queue's tasks, the newest first."""

    async def work(client: Client) -> list[TaskSummary]:
        filters = TaskFilter(queue_id=await find_queue(client, queue), state=state, business_key=business_key)
        found: list[TaskSummary] = []
        async for task in client.iterate_tasks(filters, limit=min(limit, 100)):
            found.append(task)
            if len(found) == limit:
                break
        return found

    found = call(work, as_json=as_json)
    show(
        {"tasks": [wire(task) for task in found]}, "\n".join(map(_line, found)) or "no tasks", as_json=as_json
    )


@tasks.command()
@click.argument("task_id")
@click.option(
    "--timeout", "timeout_seconds", type=click.FloatRange(0), default=0, help="Seconds; 0 waits for ever."
)
@json_option
def watch(*, task_id: str, timeout_seconds: float, as_json: bool) -> None:
    """Follow a task until it has ended or needs a review; exit code 0 if it SUCCEEDED."""

    async def work(client: Client) -> Task | None:
        seen = ""
        with trio.move_on_after(timeout_seconds or float("inf")):
            while True:
                task = await client.get_task(task_id)
                if task.state in TERMINAL or task.state == TaskState.NEEDS_REVIEW:
                    return task
                if not as_json and task.state != seen:
                    click.echo(_line(task))
                seen = task.state
                await trio.sleep(WATCH_SECONDS)
        return None

    task = call(work, as_json=as_json)
    if task is None:
        fail("TIMEOUT", f"not finished after {timeout_seconds:g} s", as_json=as_json)
    show(wire(task), "\n".join([_line(task), *_details(task)]), as_json=as_json)
    sys.exit(0 if task.state == TaskState.SUCCEEDED else 1)


@tasks.command()
@click.argument("task_id")
@click.option("--reason", help="Kept with the task's audit.")
@click.option("--idempotency-key", help="Repeat an unknown outcome under its key. Default: a new one.")
@json_option
def cancel(*, task_id: str, reason: str | None, idempotency_key: str | None, as_json: bool) -> None:
    """Cancel a task: at once while it waits; a running one is told, and ends by itself."""
    key = idempotency_key or secrets.token_hex(16)

    async def work(client: Client) -> TaskSummary:
        return (await client.cancel_task(task_id, idempotency_key=key, reason=reason)).task

    task = call(work, as_json=as_json)
    show(wire(task), _line(task), as_json=as_json)


def _line(task: TaskSummary) -> str:
    created = format_time(task.created_at.replace(tzinfo=None))
    handler = f"{task.handler}@{task.handler_version}"
    return (
        f"{task.id}  {task.state:12}  {created}  attempts {task.attempts_used}/{task.max_attempts}  {handler}"
    )


def _details(task: Task) -> list[str]:
    lines = []
    if task.error is not None:
        lines.append(f"  error    {task.error.code}: {task.error.message}")
    for name in ("payload", "output"):
        value = bytes(getattr(task, name))
        if value:
            lines.append(f"  {name:8} {value.decode()}")
    return lines


def _attempt_line(attempt: Attempt) -> str:
    token = "" if attempt.concurrency_token is None else f"  token {attempt.concurrency_token}"
    error = "" if attempt.error is None else f"  {attempt.error.code}: {attempt.error.message}"
    return f"  attempt {attempt.n}  {attempt.state}{token}{error}"
