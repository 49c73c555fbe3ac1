"""What a network does to a worker's connection, and what the library beneath gets wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio_websocket import WebSocketConnection
from wsproto.utilities import LocalProtocolError

from orbit_sdk import APIError, ConnectionLost, Execution, HandlerDeclaration, open_session
from orbit_sdk import _connection as connection_module
from orbit_sdk._connection import Connection, open_connection
from orbit_sdk._messages import ErrorMessage, Recorded, Renewed, Started
from tests.unit.sdk.peer import QUEUE_ID, PeerServer, assignment, open_peer_server
from tests.unit.sdk.test_worker import rig, start_one


@asynccontextmanager
async def connected(server: PeerServer) -> AsyncIterator[Connection]:
    """A connection that is closed at the end, whatever happens."""
    async with trio.open_nursery() as nursery:
        connection = await open_connection(nursery, server.url, "t")
        try:
            await server.next()
            yield connection
        finally:
            await connection.close()


async def test_a_half_open_peer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that is connected and answers no ping ends the connection (5 + 8 s; shortened here)."""
    monkeypatch.setattr(connection_module, "PING_SECONDS", 0.05)
    monkeypatch.setattr(connection_module, "PONG_SECONDS", 0.2)
    answered = 0
    original = WebSocketConnection._handle_ping_event

    async def answer_thrice(self: WebSocketConnection, event: Any) -> None:
        nonlocal answered
        if answered < 3:
            answered += 1
            await original(self, event)

    monkeypatch.setattr(WebSocketConnection, "_handle_ping_event", answer_thrice)
    async with open_peer_server() as server, connected(server) as connection:
        with trio.fail_after(5), pytest.raises(ConnectionLost, match="no pong"):
            await connection.keep_alive()
    assert answered == 3


async def test_an_error_out_of_the_reader_ends_one_connection_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's reader raises when a ping meets the closing handshake; the worker reconnects and goes on."""

    async def crash(self: WebSocketConnection, event: object) -> None:
        raise LocalProtocolError("Event Pong cannot be sent in state LOCAL_CLOSING")

    release = trio.Event()

    async def handler(e: Execution[Any]) -> str:
        await release.wait()
        return "done"

    async with rig() as built:
        # A connection binds its event handlers when it starts: the patch holds for the first one.
        with monkeypatch.context() as patch:
            patch.setattr(WebSocketConnection, "_handle_ping_event", crash)
            peer = await start_one(built, handler)
        with trio.move_on_after(0.3):
            await peer._socket.ping()
        peer = await built.server.next()
        await peer.greet(generation=2)
        resume = await peer.receive("resume")
        owned = {
            **resume["attempts"][0],
            "owned": True,
            "state": "RUNNING",
            "lease_ms": 1,
            "cancel_requested": False,
        }
        await peer.send({"type": "resumed", "reply_to": resume["id"], "attempts": [owned]})
        release.set()
        assert (await peer.receive("result"))["output"] == "done"


async def test_closing_does_not_wait_for_a_silent_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The farewell is bounded."""
    monkeypatch.setattr(connection_module, "CLOSE_SECONDS", 0.1)

    async def ignore(self: WebSocketConnection, event: object) -> None:
        """A peer that does not answer the close."""

    monkeypatch.setattr(WebSocketConnection, "_handle_close_connection_event", ignore)
    async with open_peer_server() as server:
        with trio.fail_after(3):
            async with connected(server):
                pass


async def test_a_server_that_hangs_up_or_says_nothing_is_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither leaves the caller waiting for ever."""
    monkeypatch.setattr(connection_module, "CONNECT_SECONDS", 0.3)
    is_silent = [False, True]

    async def serve(stream: trio.SocketStream) -> None:
        if is_silent.pop(0):
            await trio.sleep_forever()
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        url = f"ws://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        for _ in range(2):
            with trio.fail_after(3), pytest.raises(ConnectionLost):
                await open_connection(nursery, url, "t")
        nursery.cancel_scope.cancel()
    async with trio.open_nursery() as nursery:
        with pytest.raises(ConnectionLost, match="cannot connect"):
            await open_connection(nursery, url, "t")


async def test_a_refused_upgrade_names_its_status() -> None:
    """401 and 403 are told apart."""
    async with open_peer_server() as server, trio.open_nursery() as nursery:
        for status, code in ((401, "UNAUTHENTICATED"), (403, "PERMISSION_DENIED"), (503, "UNAVAILABLE")):
            server.refuse_next(status)
            with pytest.raises(APIError) as caught:
                await open_connection(nursery, server.url, "t")
            assert (caught.value.status, caught.value.code) == (status, code)


async def test_sigterm_drains_and_a_second_one_changes_nothing() -> None:
    """The running handler finishes, its result is acknowledged, `run` returns; the old signal handler is back."""
    before = signal.getsignal(signal.SIGTERM)
    release = trio.Event()

    async def handler(e: Execution[Any]) -> str:
        await release.wait()
        return "done"

    async with rig(grace_seconds=5.0) as built:
        peer = await start_one(built, handler)
        os.kill(os.getpid(), signal.SIGTERM)
        drain = await peer.receive("drain")
        os.kill(os.getpid(), signal.SIGTERM)
        await trio.sleep(0.05)
        release.set()
        await peer.record(await peer.receive("result"))
        await peer.send({"type": "drained", "reply_to": drain["id"]})
        await built.finished.wait()
        assert built.failure is None
    assert signal.getsignal(signal.SIGTERM) is before


async def test_a_session_by_hand() -> None:
    """Every request of the low-level session and its reply; keys are not declared unless asked for."""
    async with open_peer_server() as server, open_session(server.url, "t") as session:
        peer = await server.next()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.greet)
            welcome = await session.hello(
                queues=[QUEUE_ID], handlers=[HandlerDeclaration("object.update", "v1")]
            )
        assert welcome.generation == 1
        await peer.send(assignment())
        assign = await session.next_assignment()
        lease = {"attempt_id": assign.attempt_id, "epoch": "1", "ok": True, "lease_ms": 5}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_answer, peer, "start", {"type": "started", "lease_ms": 5})
            assert isinstance(await session.start(assign), Started)
            nursery.start_soon(_answer, peer, "renew", {"type": "renewed", "attempts": [lease]})
            assert isinstance(await session.renew([assign]), Renewed)
            recorded = {"type": "recorded", "task_state": "SUCCEEDED", "disposition": "APPLIED"}
            nursery.start_soon(_answer, peer, "result", recorded)
            assert isinstance(await session.succeed(assign, b"1.10", message_id="r"), Recorded)
            nursery.start_soon(_answer, peer, "decline", {"type": "error", "code": "STATE_CONFLICT"})
            assert isinstance(await session.decline(assign), ErrorMessage)
        await peer.cut()
        with pytest.raises(ConnectionLost):
            await session.drain()


async def _answer(peer: Any, kind: str, reply: dict[str, Any]) -> None:
    message = await peer.receive(kind)
    await peer.send({**reply, "reply_to": message["id"]})


INTERRUPTED = """
import sys, trio
from orbit_sdk import Execution, Worker

worker = Worker("http://127.0.0.1:9", "t", queues=["0" * 32], worker_url=sys.argv[1], grace_seconds=5)

@worker.handler("object.update")
async def update(e):
    await e.cancelled.wait()
    return "stopped in order"

trio.run(worker.run)
"""


async def test_ctrl_c_drains_a_worker_program() -> None:
    """The running handler may finish and is reported; then the program ends as an interrupted one."""
    with trio.fail_after(20):
        async with open_peer_server() as server, trio.open_nursery() as nursery:
            command = [sys.executable, "-c", INTERRUPTED, server.url]
            process = await nursery.start(
                partial(trio.run_process, command, check=False, stderr=subprocess.PIPE)
            )
            peer = await server.next()
            await peer.greet()
            await peer.send(assignment())
            await peer.grant(await peer.receive("start"))
            await peer.send(assignment(2))
            second = await peer.receive("start")
            process.send_signal(signal.SIGINT)
            drain = await peer.receive("drain")
            await peer.send(
                {"type": "refused", "reply_to": second["id"], "code": "STALE_ATTEMPT", "message": ""}
            )
            await peer.send({"type": "cancel.requested", "attempt_id": assignment()["attempt_id"]})
            result = await peer.receive("result")
            assert result["output"] == "stopped in order"
            await peer.record(result)
            await peer.send({"type": "drained", "reply_to": drain["id"]})
            assert await process.wait() == -signal.SIGINT
