"""A scripted dispatcher on loopback: real WebSocket connections whose far end the test plays by hand."""

from __future__ import annotations

import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, WebSocketServer

Message = dict[str, Any]
QUEUE_ID = "0" * 31 + "1"


class Peer:
    """The dispatcher's end of one connection."""

    def __init__(self, socket: WebSocketConnection) -> None:
        self._socket = socket
        self._unread: deque[Message] = deque()
        self.frame_sizes: list[int] = []

    async def receive(self, *types: str) -> Message:
        """The next message; of these types where some are named, others are skipped."""
        while True:
            message = await self._next()
            if not types or message["type"] in types:
                return message

    async def _next(self) -> Message:
        while not self._unread:
            decoded = json.loads(await self._socket.get_message())
            messages = decoded if isinstance(decoded, list) else [decoded]
            self.frame_sizes.append(len(messages))
            self._unread.extend(messages)
        return self._unread.popleft()

    async def send(self, *messages: Message) -> None:
        """Send messages as one frame."""
        await self._socket.send_message(json.dumps(messages[0] if len(messages) == 1 else list(messages)))

    async def close(self, code: int, reason: str = "") -> None:
        """Close with a code, not waiting long for the other side."""
        with trio.move_on_after(1):
            await self._socket.aclose(code, reason)

    async def wait_closed(self) -> int:
        """Read until the worker closes; the close code."""
        try:
            while True:
                await self._socket.get_message()
        except ConnectionClosed as exc:
            return 1006 if exc.reason is None else exc.reason.code

    async def cut(self) -> None:
        """End the TCP connection without any farewell."""
        await trio.aclose_forcefully(self._socket._stream)

    async def greet(
        self, *, generation: int = 1, lease_ms: int = 30_000, renew_ms: int = 10_000, **limits: int
    ) -> Message:
        """Take the hello and welcome the worker."""
        hello = await self.receive()
        assert hello["type"] == "hello", hello
        await self.send(
            {
                "type": "welcome",
                "reply_to": hello["id"],
                "session_id": "5" * 32,
                "generation": generation,
                "lease_ms": lease_ms,
                "renew_ms": renew_ms,
                "limits": limits,
            }
        )
        return hello

    async def grant(self, message: Message, **fields: Any) -> None:
        """Answer a start."""
        assert message["type"] == "start", message
        await self.send({"type": "started", "reply_to": message["id"], "lease_ms": 30_000, **fields})

    async def record(self, message: Message, disposition: str = "APPLIED") -> None:
        """Acknowledge a result."""
        assert message["type"] == "result", message
        await self.send(
            {
                "type": "recorded",
                "reply_to": message["id"],
                "task_state": "SUCCEEDED",
                "disposition": disposition,
            }
        )


class PeerServer:
    """Accepts workers; `next` gives their connections in order."""

    def __init__(self) -> None:
        self.url = ""
        self._send, self._connections = trio.open_memory_channel[tuple[Peer, WebSocketRequest]](100)
        self._refusals: deque[int] = deque()
        self._stop = trio.Event()
        self.requests: list[WebSocketRequest] = []

    async def next(self) -> Peer:
        """The next worker connection."""
        with trio.fail_after(10):
            peer, request = await self._connections.receive()
        self.requests.append(request)
        return peer

    def refuse_next(self, status: int) -> None:
        """Refuse the next upgrade with this status."""
        self._refusals.append(status)

    async def handle(self, request: WebSocketRequest) -> None:
        if self._refusals:
            await request.reject(self._refusals.popleft(), body=b"refused")
            return
        socket = await request.accept(subprotocol="orbit.worker.v1")
        await self._send.send((Peer(socket), request))
        await self._stop.wait()

    def stop(self) -> None:
        self._stop.set()


@asynccontextmanager
async def open_peer_server() -> AsyncIterator[PeerServer]:
    """A dispatcher on a free port of the loopback interface."""
    peers = PeerServer()
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        server = WebSocketServer(peers.handle, listeners, disconnect_timeout=0.5, message_queue_size=100)

        async def guarded(stream: trio.abc.Stream) -> None:
            # An error out of one connection must not end the others, as it does in the library's own loop.
            with contextlib.suppress(Exception):
                await server._handle_connection(stream)

        nursery.start_soon(trio.serve_listeners, guarded, listeners)
        peers.url = f"ws://127.0.0.1:{server.port}"
        try:
            yield peers
        finally:
            peers.stop()
            nursery.cancel_scope.cancel()


def assignment(number: int = 1, *, payload: Any = None, **fields: Any) -> Message:
    """A `task.assign` for attempt `number`; `task_…` fields go into the task."""
    task = {
        "id": f"{number:032x}",
        "queue_id": QUEUE_ID,
        "handler": "object.update",
        "handler_version": "v1",
        "payload_version": "v1",
        "payload": payload,
        "attempt_number": 1,
        "max_attempts": 3,
        "priority": 0,
    }
    for name in [name for name in fields if name.startswith("task_")]:
        task[name.removeprefix("task_")] = fields.pop(name)
    return {
        "type": "task.assign",
        "attempt_id": f"{number + 0xA000:032x}",
        "epoch": "1",
        "lease_ms": 30_000,
        "task": task,
        **fields,
    }
