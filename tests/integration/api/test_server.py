"""The server against peers that don't behave: each loses only its own connection (F33, F34)."""

from __future__ import annotations

import contextlib
import json
import resource
import socket

import pytest
import trio

from orbit.api import connection as bounds
from orbit.domain import limits
from orbit.store.dsn import Dsn
from tests.support.api import Api, bearer, running_api, submit_body
from tests.support.tenants import Tenant

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
UPGRADE = (
    b"GET /v1/tasks HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: %s\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


async def open_stream(api: Api) -> trio.SocketStream:
    return await trio.open_tcp_stream(api.address.host, api.address.port)


async def read_to_end(stream: trio.SocketStream, seconds: float = 20) -> bytes:
    """Return everything until the server closes; fail if it doesn't in time."""
    data = bytearray()
    with trio.fail_after(seconds):
        try:
            async for part in stream:
                data += part
        except trio.BrokenResourceError:
            pass
    return bytes(data)


async def say(api: Api, data: bytes, seconds: float = 20) -> bytes:
    """Send bytes and return all that comes until the server closes."""
    stream = await open_stream(api)
    async with stream:
        await stream.send_all(data)
        return await read_to_end(stream, seconds)


async def is_alive(api: Api) -> bool:
    return (await api.ask("GET", "/healthz")).json == {"status": "ok"}


async def test_stray_bytes_after_an_upgrade_end_nothing(api: Api) -> None:
    """An upgrade is an ordinary request: refused, and what follows it is malformed HTTP on one connection."""
    for kind in (b"websocket", b"h2c"):
        stream = await open_stream(api)
        async with stream:
            await stream.send_all(UPGRADE % kind)
            assert b" 401 " in await stream.receive_some(65_536)
            await stream.send_all(b"\x81\x05stray\r\n\r\n")
            assert b" 400 " in await read_to_end(stream)
    assert await is_alive(api)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (
            b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
        (b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/2.0\r\nHost: x\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 40_000 + b"\r\n\r\n", 431),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X: a\r\n" * 200 + b"\r\n", 431),
        (b"GET /" + b"a" * 100_000, 431),
    ],
)
async def test_malformed_http_is_refused_in_the_envelope(api: Api, request_bytes: bytes, status: int) -> None:
    """A JSON envelope with a request id, then the connection closes."""
    answer = await say(api, request_bytes)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer[:300]
    assert json.loads(body.partition(b"}}")[0] + b"}}")["error"]["code"] in {
        "INVALID_ARGUMENT",
        "UNAUTHENTICATED",
    }
    assert await is_alive(api)


async def test_unknown_paths_and_methods_have_the_envelope(api: Api) -> None:
    """404 and 405 like every other refusal."""
    for method, target, status, code in (
        ("GET", "/", 404, "NOT_FOUND"),
        ("GET", "/v1/tasks/XYZ", 404, "NOT_FOUND"),
        ("GET", "/v1//tasks", 404, "NOT_FOUND"),
        ("GET", "/v1/tasks/", 404, "NOT_FOUND"),
        ("DELETE", "/v1/tasks", 405, "METHOD_NOT_ALLOWED"),
        ("OPTIONS", "/v1/queues", 405, "METHOD_NOT_ALLOWED"),
        ("PUT", f"/v1/queues/{'0' * 32}:configure", 405, "METHOD_NOT_ALLOWED"),
    ):
        answer = await api.ask(method, target)
        assert (answer.status, answer.code) == (status, code), (method, target)
        assert answer.headers["x-request-id"] == answer.json["request_id"]
    head = await api.ask("GET", "/healthz")
    assert head.headers["content-type"] == "application/json"


async def test_idle_and_half_sent_requests_are_closed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle connection ends after the keep-alive time, headers that drip after theirs."""
    monkeypatch.setattr(bounds, "KEEP_ALIVE_SECONDS", 0.5)
    monkeypatch.setattr(bounds, "HEADERS_SECONDS", 0.5)
    idle = await open_stream(api)
    async with idle:
        await idle.send_all(HEALTH)
        assert (await read_to_end(idle, 5)).endswith(b'{"status":"ok"}')
    dripping = await open_stream(api)

    async def drip() -> None:
        try:
            for byte in HEALTH[:-2] * 3:
                await dripping.send_all(bytes([byte]))
                await trio.sleep(0.05)
        except trio.BrokenResourceError:
            return

    async with dripping, trio.open_nursery() as nursery:
        nursery.start_soon(drip)
        assert await read_to_end(dripping, 5) == b""
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/queues"])
async def test_a_dripping_body_times_out(
    api: Api, tenant: Tenant, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """408 in the envelope, whether or not the peer goes on sending; both ways that requests take."""
    monkeypatch.setattr("orbit.api.http1.BODY_TIMEOUT_SECONDS", 0.4)
    monkeypatch.setattr("orbit.api.body.BODY_TIMEOUT_SECONDS", 0.4)
    monkeypatch.setattr("orbit.api.body.DRAIN_SECONDS", 0.4)
    name, value = bearer(tenant)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{name}: {value}\r\nIdempotency-Key: k\r\nContent-Length: 100\r\n\r\n"
    stream = await open_stream(api)

    async def drip() -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            for _ in range(60):
                await stream.send_all(b" ")
                await trio.sleep(0.05)

    async with stream, trio.open_nursery() as nursery:
        await stream.send_all(head.encode())
        nursery.start_soon(drip)
        answer = await read_to_end(stream, 5)
        nursery.cancel_scope.cancel()
    assert b" 408 " in answer
    assert b"REQUEST_TIMEOUT" in answer
    assert await is_alive(api)


async def test_many_slow_peers_dont_slow_the_others(api: Api, tenant: Tenant) -> None:
    """With 300 half-sent requests open, others are answered as quickly as ever (F33)."""
    slow = [await open_stream(api) for _ in range(300)]
    for stream in slow:
        await stream.send_all(HEALTH[:20])
    worst = 0.0
    for index in range(20):
        started = trio.current_time()
        assert (await api.submit(tenant, f"k{index}")).status == 201
        worst = max(worst, trio.current_time() - started)
    assert worst < 1.0
    for stream in slow:
        await trio.aclose_forcefully(stream)


async def test_a_giant_body_costs_no_memory(api: Api, tenant: Tenant) -> None:
    """32 MiB are refused with 413; the process doesn't grow by them (F34)."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    name, value = bearer(tenant)
    size = 32 * limits.MIB
    head = (
        f"POST /v1/tasks HTTP/1.1\r\nHost: x\r\n{name}: {value}\r\nIdempotency-Key: k\r\n"
        f"Content-Length: {size}\r\n\r\n"
    )
    stream = await open_stream(api)
    chunk = bytes(64 * 1024)

    async def send() -> None:
        await stream.send_all(head.encode())
        for _ in range(size // len(chunk)):
            await stream.send_all(chunk)

    async with stream, trio.open_nursery() as nursery:
        nursery.start_soon(send)
        with trio.fail_after(20):
            answer = await stream.receive_some(65_536)
    assert b" 413 " in answer
    assert b"PAYLOAD_TOO_LARGE" in answer
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30 * 1024


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/queues"])
async def test_a_body_without_end_is_refused(
    api: Api, tenant: Tenant, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Chunks that never stop: 413 soon after the bound, whichever way the request takes."""
    monkeypatch.setattr("orbit.api.http1.DRAIN_SECONDS", 0.3)
    monkeypatch.setattr("orbit.api.body.DRAIN_SECONDS", 0.3)
    name, value = bearer(tenant)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\n{name}: {value}\r\nIdempotency-Key: k\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    )
    stream = await open_stream(api)

    async def flood() -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.send_all(head.encode())
            while True:
                await stream.send_all(b"10000\r\n" + bytes(65_536) + b"\r\n")
                await trio.sleep(0.005)

    async with stream, trio.open_nursery() as nursery:
        nursery.start_soon(flood)
        with trio.fail_after(10):
            assert b" 413 " in await stream.receive_some(65_536)
        nursery.cancel_scope.cancel()
    assert await is_alive(api)


async def test_pipelined_requests_are_answered_in_order(api: Api) -> None:
    """One after the other; a fault behind a complete request doesn't take its answer."""
    closing = HEALTH[:-2] + b"Connection: close\r\n\r\n"
    answer = await say(api, HEALTH * 3 + closing + b"nonsense")
    assert answer.count(b'{"status":"ok"}') == 4


async def test_a_peer_that_goes_away_changes_nothing(api: Api, tenant: Tenant) -> None:
    """Requests cut off at every place leave a server that answers, and a submit that was sent is done."""
    name, value = bearer(tenant)
    body = json.dumps(submit_body(tenant)).encode()
    head = (
        f"POST /v1/tasks HTTP/1.1\r\nHost: x\r\n{name}: {value}\r\nIdempotency-Key: gone\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    for cut in (1, len(head) // 2, len(head), len(head) + 5, len(head) + len(body)):
        stream = await open_stream(api)
        await stream.send_all((head + body)[:cut])
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        await trio.aclose_forcefully(stream)
    with trio.fail_after(10):
        while (await api.submit(tenant, "gone")).status != 200:  # noqa: ASYNC110
            await trio.sleep(0.05)
    assert await is_alive(api)


async def test_exit_is_prompt_with_idle_peers(dsn: Dsn) -> None:
    """Idle connections don't delay the end."""
    async with running_api(dsn) as api:
        idle = await api.connect()
        assert (await idle.ask("GET", "/healthz")).status == 200
        untouched = await open_stream(api)
        started = trio.current_time()
    assert trio.current_time() - started < 3.0
    await idle.aclose()
    await untouched.aclose()


async def test_exit_is_bounded_with_a_peer_that_never_reads(
    dsn: Dsn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answers fill every buffer; the end comes all the same."""
    monkeypatch.setattr("orbit.api.server.GRACEFUL_SECONDS", 1.0)
    async with running_api(dsn) as api:
        stuck = await open_stream(api)
        stuck.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        request = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
        with trio.move_on_after(2):
            while True:
                await stuck.send_all(request * 100)
        started = trio.current_time()
    assert trio.current_time() - started < 1.0 + bounds.LINGER_SECONDS + 2.0
    await trio.aclose_forcefully(stuck)


async def test_what_is_in_hand_is_finished(dsn: Dsn, tenant: Tenant) -> None:
    """A request that arrived before the end is answered, with `Connection: close`; new ones are refused."""
    async with running_api(dsn) as api:
        name, value = bearer(tenant)
        body = json.dumps(submit_body(tenant)).encode()
        head = (
            f"POST /v1/tasks HTTP/1.1\r\nHost: x\r\n{name}: {value}\r\nIdempotency-Key: last\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        stream = await open_stream(api)
        await stream.send_all(head.encode())
        await trio.testing.wait_all_tasks_blocked(0.05)
        api.stop.set()
        await trio.testing.wait_all_tasks_blocked(0.05)
        with pytest.raises(OSError, match="attempts to connect"):
            await open_stream(api)
        await stream.send_all(body)
        answer = await read_to_end(stream)
        await trio.aclose_forcefully(stream)
    assert b" 201 " in answer
    assert b"connection: close" in answer


async def test_the_access_log_names_requests_and_nothing_else(dsn: Dsn, tenant: Tenant) -> None:
    """One JSON line each with the answer's request id; no token, query or payload."""
    async with running_api(dsn) as api:
        accepted = await api.submit(tenant, "secret-key", payload="secret-payload")
        await api.get(f"/v1/tasks?queue_id={tenant.queue_id.hex()}&business_key=secret-key", tenant)
    lines = [json.loads(line) for line in api.log.getvalue().splitlines()]
    assert [(line["method"], line["path"], line["status"]) for line in lines] == [
        ("POST", "/v1/tasks", 201),
        ("GET", "/v1/tasks", 200),
    ]
    assert lines[0]["request_id"] == accepted.json["request_id"]
    assert "secret" not in api.log.getvalue()
    assert tenant.token_text not in api.log.getvalue()
