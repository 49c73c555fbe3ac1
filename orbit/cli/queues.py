"""`orbit queues`: list, show, create, pause and resume."""

from __future__ import annotations

import secrets

import click

from orbit.cli.client import call, find_queue, show, wire
from orbit.runtime.console import json_option
from orbit_sdk import Client, ConfigureQueue, CreateQueue, Queue

EPILOG = """
\b
Examples:
  orbit queues list
  orbit queues create mail --max-concurrency 50 --rate-per-second 20
  orbit queues pause mail --reason "provider is down"
  orbit queues show mail --json
"""


@click.group(epilog=EPILOG)
def queues() -> None:
    """Queues and their limits. QUEUE is a name or an id."""


@queues.command(name="list")
@json_option
def list_(*, as_json: bool) -> None:
    """List all queues of the namespace."""

    async def work(client: Client) -> list[Queue]:
        return [queue async for queue in client.iterate_queues(limit=100)]

    found = call(work, as_json=as_json)
    lines = [_line(queue) for queue in found]
    show({"queues": [wire(queue) for queue in found]}, "\n".join(lines) or "no queues", as_json=as_json)


@queues.command(name="show")
@click.argument("queue")
@json_option
def show_(*, queue: str, as_json: bool) -> None:
    """Show one queue with its live usage."""

    async def work(client: Client) -> Queue:
        return await client.get_queue(await find_queue(client, queue))

    found = call(work, as_json=as_json)
    show(wire(found), _line(found), as_json=as_json)


@queues.command()
@click.argument("name")
@click.option("--max-concurrency", type=click.IntRange(1, 100_000), default=100, show_default=True)
@click.option("--rate-per-second", type=click.IntRange(1, 1_000_000), default=1_000, show_default=True)
@click.option("--max-unfinished-tasks", type=click.IntRange(1, 1_000_000), help="Default: 100,000.")
@click.option("--idempotency-key", help="Repeat an unknown outcome under its key. Default: a new one.")
@json_option
def create(
    *,
    name: str,
    max_concurrency: int,
    rate_per_second: int,
    max_unfinished_tasks: int | None,
    idempotency_key: str | None,
    as_json: bool,
) -> None:
    """Create a queue."""
    command = CreateQueue(
        name=name,
        max_concurrency=max_concurrency,
        rate_per_second=rate_per_second,
        max_unfinished_tasks=max_unfinished_tasks,
    )

    async def work(client: Client) -> Queue:
        key = idempotency_key or secrets.token_hex(16)
        return (await client.create_queue(command, idempotency_key=key)).queue

    made = call(work, as_json=as_json)
    show(wire(made), _line(made), as_json=as_json)


@queues.command()
@click.argument("queue")
@click.option("--reason", required=True, help="For the audit.")
@json_option
def pause(*, queue: str, reason: str, as_json: bool) -> None:
    """Stop new claims and Starts; everything else goes on."""
    _set_paused(queue, reason, paused=True, as_json=as_json)


@queues.command()
@click.argument("queue")
@click.option("--reason", required=True, help="For the audit.")
@json_option
def resume(*, queue: str, reason: str, as_json: bool) -> None:
    """Let a paused queue go on."""
    _set_paused(queue, reason, paused=False, as_json=as_json)


def _set_paused(name_or_id: str, reason: str, *, paused: bool, as_json: bool) -> None:
    async def work(client: Client) -> Queue:
        found = await client.get_queue(await find_queue(client, name_or_id))
        command = ConfigureQueue(
            expected_revision=found.revision,
            reason=reason,
            paused=paused,
            max_concurrency=found.max_concurrency,
            rate_per_second=found.rate_per_second,
            max_unfinished_tasks=found.max_unfinished_tasks,
        )
        result = await client.configure_queue(found.id, command, idempotency_key=secrets.token_hex(16))
        return result.queue

    changed = call(work, as_json=as_json)
    show(wire(changed), _line(changed), as_json=as_json)


def _line(queue: Queue) -> str:
    state = "paused" if queue.paused else "active"
    return (
        f"{queue.id}  {state}  {queue.unfinished_tasks}/{queue.max_unfinished_tasks} unfinished  "
        f"concurrency {queue.max_concurrency}  rate {queue.rate_per_second}/s  {queue.name}"
    )
