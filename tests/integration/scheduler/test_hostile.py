"""Clients that flood, never read, vanish, or speak at the wrong moment harm nobody but themselves."""

from __future__ import annotations

import json
import struct
from contextlib import suppress

import pytest
import trio

from orbit.domain.ids import id_text
from orbit.scheduler.service import Service
from tests.support.frames import FrameWorker, connected
from tests.support.pulse import Pulse
from tests.support.rawsocket import CLOSE, PING, PONG, TEXT, RawSocket, frame
from tests.support.tenants import Tenant
from tests.support.until import until


def hello(tenant: Tenant, **fields: object) -> bytes:
    message = FrameWorker(None, tenant).hello(**fields)  # type: ignore[arg-type]
    return json.dumps(message).encode()


async def open_raw(
    service: Service, tenant: Tenant, *, receive_buffer: int | None = None, **fields: object
) -> RawSocket:
    """Connect and be welcomed."""
    raw = await RawSocket.connect(service.port, tenant.token_text, receive_buffer=receive_buffer)
    await raw.send(TEXT, hello(tenant, **fields))
    with trio.fail_after(5):
        received = await raw.receive()
    assert received is not None
    assert json.loads(received[1])["type"] == "welcome"
    return raw


async def assert_serves(service: Service, tenant: Tenant) -> None:
    """Another worker gets its answers at once."""
    with trio.fail_after(2):
        async with connected(service.url, tenant) as worker:
            await worker.welcome()
            await worker.ask("renew", attempts=[])


async def test_a_ping_while_the_server_closes_ends_that_connection_only(
    service: Service, tenant: Tenant
) -> None:
    """trio-websocket raises in its reader then; the process goes on."""
    for _ in range(3):
        raw = await open_raw(service, tenant)
        # A violation, and pings that arrive while the server waits for the close handshake.
        await raw.stream.send_all(frame(TEXT, b"nonsense") + frame(PING, b"now") * 3)
        with trio.fail_after(10):
            received = await raw.receive()
            while received is not None and received[0] != CLOSE:
                received = await raw.receive()
            with suppress(trio.BrokenResourceError):
                await raw.stream.send_all(frame(PING, b"later") * 3)
            await raw.until_closed()
        await raw.stream.aclose()
    await assert_serves(service, tenant)


async def test_pings_are_answered_while_the_dispatcher_works(
    service: Service, tenant: Tenant, pulse: Pulse
) -> None:
    """The reader never waits for the database."""
    pulse.submit_many(200)
    raw = await open_raw(service, tenant, capacity=100)
    answered = 0
    with trio.fail_after(10):
        await raw.send(PING, b"1")
        while answered < 5:
            received = await raw.receive()
            assert received is not None
            if received[0] == PONG:
                answered += 1
                await raw.send(PING, str(answered).encode())
    await trio.aclose_forcefully(raw.stream)


@pytest.mark.slow
async def test_a_silent_peer_is_dropped_within_15_seconds(service: Service, tenant: Tenant) -> None:
    """F15: bytes vanish in both directions; the session ends, and no other."""
    raw = await open_raw(service, tenant)
    async with connected(service.url, tenant) as live:
        await live.welcome()
        began = trio.current_time()
        await until(lambda: len(service.dispatcher.sessions) == 1, 16)
        assert 5.0 < trio.current_time() - began < 15.0
        assert (await live.ask("renew", attempts=[]))["type"] == "renewed"
    await trio.aclose_forcefully(raw.stream)


@pytest.mark.slow
async def test_a_peer_that_never_reads_ends_in_bounded_memory(
    service: Service, tenant: Tenant, pulse: Pulse
) -> None:
    """F19: 30 MiB of payloads wait for a worker that doesn't read; others are served, then its session ends."""
    payload = json.dumps("x" * (250 * 1024)).encode()
    for _ in range(15):
        pulse.submit_each([pulse.command(payload=payload) for _ in range(8)])
    raw = await open_raw(service, tenant, receive_buffer=4_096, capacity=200)
    (session,) = service.dispatcher.sessions.values()
    with trio.fail_after(25):
        while service.dispatcher.sessions:
            assert session.outbox.bytes < 8 * 1024 * 1024
            await assert_accepts(service, tenant)
            await trio.sleep(0.5)
    assert session.outbox.ending is not None
    assert session.outbox.ending.code == 1013
    await trio.aclose_forcefully(raw.stream)


async def assert_accepts(service: Service, tenant: Tenant) -> None:
    """A connection is upgraded at once; it takes no work away."""
    with trio.fail_after(2):
        raw = await RawSocket.connect(service.port, tenant.token_text)
        await trio.aclose_forcefully(raw.stream)


async def test_a_flood_of_commands_ends_its_session(service: Service, tenant: Tenant) -> None:
    """F19: far more unanswered commands than a worker can hold attempts: 1013, while others are answered."""
    raw = await open_raw(service, tenant, capacity=1)
    starts = [
        {"type": "start", "id": f"{n}", "attempt_id": id_text(bytes(16)), "epoch": "1"} for n in range(64)
    ]
    data = frame(TEXT, json.dumps(starts).encode()) * 200
    code = None

    async def read() -> None:
        nonlocal code
        code = await raw.until_closed()

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            with suppress(trio.BrokenResourceError):
                await raw.stream.send_all(data)
            await assert_serves(service, tenant)
    assert code == 1013
    await trio.aclose_forcefully(raw.stream)


async def test_endless_fragments_end_their_connection(
    service: Service, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that never completes, in empty fragments, isn't collected for ever (here with a smaller bound)."""
    monkeypatch.setattr("orbit.scheduler.wire.UNREAD_MAX_BYTES", 256 * 1024)
    raw = await open_raw(service, tenant)
    with trio.fail_after(20):
        await raw.send(TEXT, b"", final=False)
        try:
            while service.dispatcher.sessions:
                await raw.stream.send_all(frame(0, b"", final=False) * 5_000)
        except trio.BrokenResourceError:
            pass
        await until(lambda: not service.dispatcher.sessions)
    await assert_serves(service, tenant)
    await trio.aclose_forcefully(raw.stream)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        b"\xff" * 70_000,
        b"",
    ],
    ids=["plain HTTP", "TLS", "noise", "nothing"],
)
async def test_what_isnt_a_websocket_harms_nobody(service: Service, tenant: Tenant, data: bytes) -> None:
    """Whatever bytes come, the next worker is served."""
    stream = await trio.open_tcp_stream("127.0.0.1", service.port)
    try:
        await stream.send_all(data)
        await assert_serves(service, tenant)
    except trio.BrokenResourceError:
        pass
    finally:
        await trio.aclose_forcefully(stream)
    await assert_serves(service, tenant)


async def test_an_unmasked_frame_and_bad_utf8_end_the_connection(service: Service, tenant: Tenant) -> None:
    """Errors below the messages end the socket as well."""
    for data in (struct.pack(">BB", 0x81, 2) + b"{}", frame(TEXT, b"\xff\xfe")):
        raw = await open_raw(service, tenant)
        await raw.stream.send_all(data)
        with trio.fail_after(5):
            await raw.until_closed()
            await until(lambda: not service.dispatcher.sessions)
        await trio.aclose_forcefully(raw.stream)
    await assert_serves(service, tenant)
