"""A worker session by hand: one connection, messages in and out, replies matched. For tests and tools."""

from __future__ import annotations

import secrets
import ssl
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import count

import trio
from msgspec import Raw

from orbit_sdk._connection import Connection, open_connection
from orbit_sdk._errors import ConnectionLost, ProtocolError, SessionRefused
from orbit_sdk._frames import decode_frame, encode_frame
from orbit_sdk._messages import (
    Assign,
    AttemptRef,
    ClientMessage,
    Decline,
    Drain,
    Drained,
    ErrorMessage,
    ErrorText,
    HandlerDeclaration,
    Hello,
    Renew,
    Renewed,
    Result,
    Resume,
    Resumed,
    ServerMessage,
    Start,
    Welcome,
)

SDK_NAME = "orbit-python-session/0.1.0"


class Session:
    """An open connection without any automation: nothing is started, renewed, resumed or repeated by itself.

    `welcome` is set by `hello`; assignments and cancel requests wait in `events`; every request returns its reply,
    which may be an `ErrorMessage`. All of it raises ConnectionLost once the connection has ended.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: dict[str, tuple[trio.Event, list[ServerMessage]]] = {}
        self._end: ConnectionLost | ProtocolError | None = None
        self._numbers = count(1)
        self._send_events, self.events = trio.open_memory_channel[ServerMessage](10_000)
        self.welcome: Welcome | None = None

    def new_id(self) -> str:
        """A message id that this session has not used."""
        return f"m{next(self._numbers)}"

    async def send(self, messages: Iterable[ClientMessage]) -> None:
        """Send messages as array frames without waiting for replies."""
        waiting = deque(messages)
        while waiting:
            await self._connection.send(encode_frame(waiting))

    async def send_text(self, frame: str) -> None:
        """Send any text as one frame."""
        await self._connection.send(frame)

    async def request(self, message: ClientMessage) -> ServerMessage:
        """Send one message and wait for its reply."""
        return (await self.request_all([message]))[0]

    async def request_all(self, messages: Sequence[ClientMessage]) -> list[ServerMessage]:
        """Send messages together and wait for all replies, in the order of the messages."""
        if self._end is not None:
            raise self._end
        slots = [(trio.Event(), list[ServerMessage]()) for _ in messages]
        for message, slot in zip(messages, slots, strict=True):
            self._waiting[message.id] = slot
        await self.send(messages)
        for event, _ in slots:
            await event.wait()
        end = self.end
        if end is not None and not all(box for _, box in slots):
            raise end
        return [box[0] for _, box in slots]

    async def hello(
        self,
        *,
        queues: Sequence[str],
        handlers: Sequence[HandlerDeclaration],
        capacity: int = 1,
        concurrency_keys: bool = False,
        worker_id: str | None = None,
        name: str | None = None,
    ) -> Welcome:
        """Register; without `concurrency_keys` only keyless tasks are assigned. Raises SessionRefused."""
        message = Hello(
            id=self.new_id(),
            worker_id=worker_id or secrets.token_hex(16),
            sdk=SDK_NAME,
            queues=list(queues),
            handlers=list(handlers),
            capacity=capacity,
            concurrency_keys=concurrency_keys,
            name=name,
        )
        reply = await self.request(message)
        if isinstance(reply, ErrorMessage):
            raise SessionRefused(reply.code, reply.message)
        assert isinstance(reply, Welcome)
        self.welcome = reply
        return reply

    async def resume(self, attempts: Sequence[AttemptRef] = ()) -> Resumed | ServerMessage:
        """Move held attempts to this session."""
        return await self.request(Resume(self.new_id(), list(attempts)))

    async def next_assignment(self) -> Assign:
        """The next assignment; other events before it are dropped."""
        async for event in self.events:
            if isinstance(event, Assign):
                return event
        raise self._end or ConnectionLost(1006, "")

    async def start(self, assign: Assign, *, message_id: str | None = None) -> ServerMessage:
        """Ask for leave to run an attempt."""
        return await self.request(Start(message_id or self.new_id(), assign.attempt_id, assign.epoch))

    async def renew(self, attempts: Sequence[Assign]) -> Renewed | ServerMessage:
        """Extend leases."""
        refs = [AttemptRef(assign.attempt_id, assign.epoch) for assign in attempts]
        return await self.request(Renew(self.new_id(), refs))

    async def succeed(
        self, assign: Assign, output: bytes = b"null", *, message_id: str | None = None
    ) -> ServerMessage:
        """Report success with an output of JSON bytes."""
        return await self.request(
            Result(
                id=message_id or self.new_id(),
                attempt_id=assign.attempt_id,
                epoch=assign.epoch,
                outcome="SUCCEEDED",
                output=Raw(output),
            )
        )

    async def report(
        self,
        assign: Assign,
        outcome: str,
        error: ErrorText,
        *,
        retry_after_ms: int | None = None,
        message_id: str | None = None,
    ) -> ServerMessage:
        """Report FAILED, RETRY or UNKNOWN."""
        return await self.request(
            Result(
                id=message_id or self.new_id(),
                attempt_id=assign.attempt_id,
                epoch=assign.epoch,
                outcome=outcome,
                error=error,
                retry_after_ms=retry_after_ms,
            )
        )

    async def decline(self, assign: Assign, reason: str = "BUSY") -> ServerMessage:
        """Give back an unstarted attempt."""
        return await self.request(Decline(self.new_id(), assign.attempt_id, assign.epoch, reason))

    async def drain(self) -> Drained | ServerMessage:
        """Ask for no more assignments; returns once nothing is in flight."""
        return await self.request(Drain(self.new_id()))

    async def receive_until_lost(self) -> None:
        """Route incoming messages until the connection ends; runs as a task of its own."""
        try:
            while True:
                for message in decode_frame(await self._connection.receive()):
                    self._route(message)
        except (ConnectionLost, ProtocolError) as exc:
            self._end = exc
        finally:
            if self._end is None:
                self._end = ConnectionLost(1006, "the session was left")
            for event, _ in self._waiting.values():
                event.set()
            self._send_events.close()

    @property
    def end(self) -> ConnectionLost | ProtocolError | None:
        """How the connection ended, None while it lives."""
        return self._end

    def _route(self, message: ServerMessage) -> None:
        reply_to = getattr(message, "reply_to", None)
        slot = self._waiting.pop(reply_to, None) if reply_to is not None else None
        if slot is None:
            self._send_events.send_nowait(message)
            return
        slot[1].append(message)
        slot[0].set()


@asynccontextmanager
async def open_session(
    url: str, token: str, *, ssl_context: ssl.SSLContext | None = None
) -> AsyncIterator[Session]:
    """Connect to the dispatcher at a `ws`, `wss`, `http` or `https` URL; the connection closes with the block."""
    async with trio.open_nursery() as nursery:
        connection = await open_connection(nursery, url, token, ssl_context=ssl_context)
        session = Session(connection)
        try:
            nursery.start_soon(session.receive_until_lost)
            yield session
        finally:
            await connection.close()
            nursery.cancel_scope.cancel()
