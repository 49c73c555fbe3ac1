"""Submit a task and work on it, in one program."""

import uuid

import trio

from orbit_sdk import Client, CreateQueue, Execution, SubmitTask, Worker, decode_exact

client = Client.from_env()
worker = Worker(client, queues=["quickstart"])


@worker.handler("greet", version="v1")
async def greet(e: Execution[dict[str, str]]) -> str:
    return f"Hello, {e.payload['name']}!"


async def main() -> None:
    command = CreateQueue(name="quickstart", max_concurrency=10, rate_per_second=100)
    queue = (await client.create_queue(command, idempotency_key="quickstart-queue")).queue
    task = SubmitTask(
        queue_id=queue.id,
        handler="greet",
        handler_version="v1",
        payload_version="v1",
        payload={"name": "World"},
    )
    async with client, trio.open_nursery() as nursery:
        await nursery.start(worker.run)
        accepted = (await client.submit(task, idempotency_key=uuid.uuid4().hex)).task
        done = await client.wait_until_ended(accepted.id)
        print(decode_exact(done.output))
        worker.drain()


trio.run(main)
