"""A worker that speaks frames: no SDK, no convenience, so that tests say exactly what is on the wire."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio
from trio_websocket import CloseReason, ConnectionClosed, WebSocketConnection, wrap_client_stream

from orbit.domain.ids import id_text
from tests.support.tenants import Tenant

PATH = "/v1/workers/connect"
SUBPROTOCOL = "orbit.worker.v1"
WAIT_SECONDS = 10.0

Message = dict[str, Any]


def bearer(token: str) -> list[tuple[bytes, bytes]]:
    return [(b"Authorization", f"Bearer {token}".encode())]


class FrameWorker:
    """One connection. Messages that a test hasn't asked for yet stay in `inbox`, in order of arrival."""

    def __init__(self, socket: WebSocketConnection, tenant: Tenant) -> None:
        self.socket = socket
        self.tenant = tenant
        self.inbox: list[Message] = []
        self.closed: CloseReason | None = None
        self.frames = 0

    # --- sending

    async def send(self, *messages: Message) -> None:
        """Send one frame: an object for one message, an array for more."""
        await self.socket.send_message(json.dumps(messages[0] if len(messages) == 1 else messages))

    async def say(self, type_: str, **fields: Any) -> str:
        """Send one message under an id of its own and return that id."""
        message = {"type": type_, "id": secrets.token_hex(8), **fields}
        await self.send(message)
        return str(message["id"])

    async def ask(self, type_: str, **fields: Any) -> Message:
        """Send one message and return the reply to it."""
        return await self.reply(await self.say(type_, **fields))

    def hello(self, **fields: Any) -> Message:
        return {
            "type": "hello",
            "id": secrets.token_hex(8),
            "worker_id": secrets.token_hex(16),
            "sdk": "frames/1",
            "queues": [id_text(self.tenant.queue_id)],
            "handlers": [{"name": "work", "version": "1"}],
            "capacity": 10,
            "concurrency_keys": True,
            **fields,
        }

    async def welcome(self, **fields: Any) -> Message:
        """Say hello and return the welcome."""
        message = self.hello(**fields)
        await self.send(message)
        answer = await self.reply(message["id"])
        assert answer["type"] == "welcome", answer
        return answer

    async def start(self, assignment: Message) -> Message:
        return await self.ask("start", **ref(assignment))

    async def finish(self, assignment: Message, outcome: str = "SUCCEEDED", **fields: Any) -> Message:
        return await self.ask("result", **ref(assignment), outcome=outcome, **fields)

    async def work_one(self) -> Message:
        """Take the next assignment through start and success; return it."""
        assignment = await self.next("task.assign")
        assert (await self.start(assignment))["type"] == "started"
        assert (await self.finish(assignment))["disposition"] == "APPLIED"
        return assignment

    # --- receiving

    async def reply(self, message_id: str) -> Message:
        return await self._find(lambda message: message.get("reply_to") == message_id, message_id)

    async def next(self, type_: str) -> Message:
        return await self._find(lambda message: message["type"] == type_, type_)

    async def many(self, type_: str, count: int) -> list[Message]:
        return [await self.next(type_) for _ in range(count)]

    async def none(self, type_: str, seconds: float) -> None:
        """Check that no message of a type comes for so long."""
        with trio.move_on_after(seconds):
            found = await self.next(type_)
            raise AssertionError(f"unexpected {found}")

    async def closing(self, seconds: float = WAIT_SECONDS) -> CloseReason:
        """Wait for the end of the connection and return its code and reason."""
        with trio.fail_after(seconds):
            while self.closed is None:
                await self._receive()
        return self.closed

    async def _find(self, matches: Any, what: str) -> Message:
        with trio.fail_after(WAIT_SECONDS):
            seen = 0
            while True:
                for position in range(seen, len(self.inbox)):
                    if matches(self.inbox[position]):
                        return self.inbox.pop(position)
                seen = len(self.inbox)
                if self.closed is not None:
                    raise AssertionError(f"closed {self.closed} while waiting for {what}; {self.inbox}")
                await self._receive()

    async def _receive(self) -> None:
        try:
            frame = json.loads(await self.socket.get_message())
        except ConnectionClosed:
            self.closed = self.socket.closed
            return
        self.frames += 1
        self.inbox += frame if isinstance(frame, list) else [frame]


def ref(assignment: Message) -> Message:
    """Return what names an attempt."""
    return {"attempt_id": assignment["attempt_id"], "epoch": assignment["epoch"]}


def refs(assignments: Sequence[Message]) -> list[Message]:
    return [ref(assignment) for assignment in assignments]


@asynccontextmanager
async def connected(
    url: str, tenant: Tenant, *, token: str | None = None, subprotocols: Sequence[str] = (SUBPROTOCOL,)
) -> AsyncIterator[FrameWorker]:
    """Connect a worker; leaving cuts the connection without a goodbye unless it has ended."""
    host, _, port = url.removeprefix("ws://").partition("/")[0].rpartition(":")
    path = url.removeprefix("ws://").partition("/")[2]
    stream = await trio.open_tcp_stream(host, int(port))
    try:
        async with trio.open_nursery() as nursery:
            socket = await wrap_client_stream(
                nursery,
                stream,
                f"{host}:{port}",
                f"/{path}{PATH}" if path else PATH,
                subprotocols=list(subprotocols),
                extra_headers=bearer(token or tenant.token_text),
            )
            yield FrameWorker(socket, tenant)
            nursery.cancel_scope.cancel()
    finally:
        await trio.aclose_forcefully(stream)
