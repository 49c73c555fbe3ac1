"""Work on tasks of the queue `default` until Ctrl-C."""

from contextlib import suppress

import trio

from orbit_sdk import Client, Execution, Worker

client = Client.from_env()
worker = Worker(client, queues=["default"])


@worker.handler("greet", version="v1")
async def greet(e: Execution[dict[str, str]]) -> str:
    greeting = f"Hello, {e.payload['name']}!"
    print(greeting, flush=True)
    return greeting


async def main() -> None:
    async with client:
        await worker.run()


with suppress(KeyboardInterrupt):
    trio.run(main)
