"""The HTTP transport on loopback sockets: reuse, loss before and after sending, time limits."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import httpcore
import pytest
import trio

from orbit_sdk import OutcomeUnknown, Request, TransportError
from orbit_sdk._http import Origin, PooledTransport
from orbit_sdk._stream import ExchangeStream

Serve = Callable[[trio.SocketStream, int], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def request(method: str = "POST", body: bytes = b"{}") -> Request:
    headers = [(b"Host", b"h")] + ([(b"Content-Length", str(len(body)).encode())] if body else [])
    return Request(method=method, target="/x?secret=1", headers=headers, body=body, is_write=method == "POST")


@asynccontextmanager
async def server(serve: Serve, *, limit: float = 5.0, size: int = 64) -> AsyncIterator[PooledTransport]:
    """A transport to a server that plays `serve` on every connection, with its number."""
    number = 0

    async def handle(stream: trio.SocketStream) -> None:
        nonlocal number
        number += 1
        await serve(stream, number)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, handle, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        transport = PooledTransport(
            Origin.parse(f"http://127.0.0.1:{port}"), timeout_seconds=limit, size=size
        )
        yield transport
        await transport.aclose()
        nursery.cancel_scope.cancel()


async def read_request(stream: trio.SocketStream) -> bytes:
    """One whole request with a two-byte body, or what there is when the client leaves."""
    data = b""
    while not data.endswith(b"\r\n\r\n" if data.startswith(b"GET") else b"\r\n\r\n{}"):
        more = await stream.receive_some()
        if not more:
            break
        data += more
    return data


async def test_connections_are_reused() -> None:
    """Sequential requests share one connection."""
    connections = []

    async def serve(stream: trio.SocketStream, number: int) -> None:
        connections.append(number)
        while await read_request(stream):
            await stream.send_all(OK)

    async with server(serve) as transport:
        for _ in range(3):
            response = await transport.send(request())
            assert (response.status, response.body) == (200, b"ok")
    assert connections == [1]


async def test_a_connection_closed_while_idle_is_replaced() -> None:
    """The server's keep-alive limit is no failure."""
    closed = trio.Event()

    async def serve(stream: trio.SocketStream, number: int) -> None:
        await read_request(stream)
        await stream.send_all(OK)
        if number == 1:
            await stream.aclose()
            closed.set()
            return
        await read_request(stream)

    async with server(serve) as transport:
        await transport.send(request())
        await closed.wait()
        assert (await transport.send(request())).status == 200


async def test_connection_close_is_honoured() -> None:
    """A response that announces the end is complete, and the next request gets a new connection."""

    async def serve(stream: trio.SocketStream, number: int) -> None:
        await read_request(stream)
        await stream.send_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%d" % number)
        await stream.aclose()

    async with server(serve) as transport:
        assert (await transport.send(request())).body == b"1"
        assert (await transport.send(request())).body == b"2"


async def test_chunked_and_informational_responses_are_read() -> None:
    """What proxies make of a response is still that response."""

    async def serve(stream: trio.SocketStream, number: int) -> None:
        await read_request(stream)
        await stream.send_all(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        await stream.send_all(b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await stream.send_all(b"2\r\nde\r\n0\r\n\r\n")
        await read_request(stream)

    async with server(serve) as transport:
        response = await transport.send(request())
        assert (response.status, response.body) == (201, b"abcde")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/2 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokay\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nspaced name: 1\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 200_000,
    ],
)
async def test_a_malformed_response_is_refused(answer: bytes) -> None:
    """An ambiguous or endless message is no answer."""

    async def serve(stream: trio.SocketStream, number: int) -> None:
        await read_request(stream)
        # The client may leave before it has heard everything.
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.send_all(answer)
            await stream.send_eof()
            await stream.receive_some()

    async with server(serve) as transport:
        with pytest.raises(OutcomeUnknown, match="RemoteProtocolError"):
            await transport.send(request())


async def test_an_endless_response_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much arrives, only so much is kept."""
    monkeypatch.setattr("orbit_sdk._stream.RESPONSE_MAX_BYTES", 100_000)

    async def serve(stream: trio.SocketStream, number: int) -> None:
        await read_request(stream)
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                await stream.send_all(b"y" * 10_000)

    async with server(serve) as transport:
        with pytest.raises(OutcomeUnknown, match="too large"):
            await transport.send(request())


async def test_the_bound_is_one_of_each_response(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection may carry more in all."""
    monkeypatch.setattr("orbit_sdk._stream.RESPONSE_MAX_BYTES", len(OK))

    async def serve(stream: trio.SocketStream, number: int) -> None:
        while await read_request(stream):
            await stream.send_all(OK)

    async with server(serve) as transport:
        for _ in range(3):
            assert (await transport.send(request())).body == b"ok"


async def test_a_request_leaves_in_one_piece() -> None:
    """Head and body reach the server together."""
    pieces = []

    async def serve(stream: trio.SocketStream, number: int) -> None:
        pieces.append(bytes(await stream.receive_some()))
        await stream.send_all(OK)

    async with server(serve) as transport:
        await transport.send(request())
    assert pieces == [b"POST /x?secret=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"]


async def test_an_early_answer_is_read_though_sending_failed() -> None:
    """A server may refuse a large request and close before all of it has come."""

    class Refusing(httpcore.AsyncMockStream):
        async def write(self, *_: object) -> None:
            raise httpcore.WriteError

    stream = ExchangeStream(Refusing([b"HTTP/1.1 413 Content Too Large\r\n\r\n"]))
    await stream.write(b"POST / HTTP/1.1\r\n\r\n")
    assert (await stream.read(65_536)).startswith(b"HTTP/1.1 413")


async def test_a_response_is_read_however_it_is_cut() -> None:
    """Byte by byte, with a body of each kind, on one connection."""
    whole = (
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n4;x=1\r\nseco\r\n2\r\nnd\r\n0\r\nT: r\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        OK,
    )

    async def serve(stream: trio.SocketStream, number: int) -> None:
        for answer in whole:
            await read_request(stream)
            for position in range(len(answer)):
                await stream.send_all(answer[position : position + 1])
                await trio.lowlevel.checkpoint()
        await stream.receive_some()

    async with server(serve) as transport:
        bodies = [(await transport.send(request())).body for _ in whole]
    assert bodies == [b"first", b"second", b"", b"ok"]


async def test_nothing_breaks_out_of_the_request_line() -> None:
    """A target with a space or a line break is refused before anything is sent."""
    transport = PooledTransport(Origin.parse("http://127.0.0.1:9"))
    for target in ("/a b", "/a\r\nX: y", "a", "/ä"):
        bad = Request(method="GET", target=target, headers=[], body=b"", is_write=False)
        with pytest.raises(ValueError, match="target"):
            await transport.send(bad)


async def test_a_refused_connection_is_no_unknown_outcome() -> None:
    """Nothing was sent."""
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    transport = PooledTransport(Origin.parse(f"http://127.0.0.1:{port}"))
    with pytest.raises(TransportError) as caught:
        await transport.send(request())
    assert not isinstance(caught.value, OutcomeUnknown)


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal", b"garbage\r\n\r\n"]
)
async def test_a_write_whose_answer_is_lost_is_unknown(answer: bytes) -> None:
    """Cut before, within, or instead of the answer; the query stays out of the message. A read just failed."""

    async def serve(stream: trio.SocketStream, number: int) -> None:
        await read_request(stream)
        if answer:
            await stream.send_all(answer)
        await stream.aclose()

    async with server(serve) as transport:
        with pytest.raises(OutcomeUnknown) as caught:
            await transport.send(request())
        assert "secret" not in str(caught.value)
        with pytest.raises(TransportError) as failed:
            await transport.send(request("GET", b""))
        assert not isinstance(failed.value, OutcomeUnknown)


async def test_silence_ends_at_the_time_limit(autojump_clock: trio.testing.MockClock) -> None:
    """A server that never answers is given up."""

    async def serve(stream: trio.SocketStream, number: int) -> None:
        await trio.sleep_forever()

    autojump_clock.autojump_threshold = 0.05
    async with server(serve, limit=3.0) as transport:
        with pytest.raises(OutcomeUnknown, match="timed out"):
            await transport.send(request())


async def test_a_cancelled_request_takes_its_connection_along() -> None:
    """The late answer must not become the answer of the next request."""
    arrived = trio.Event()

    async def serve(stream: trio.SocketStream, number: int) -> None:
        await read_request(stream)
        if number == 1:
            arrived.set()
            await trio.sleep_forever()
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number)

    async with server(serve, size=1) as transport:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.send, request())
            await arrived.wait()
            nursery.cancel_scope.cancel()
        with trio.fail_after(5):
            assert (await transport.send(request())).body == b"2"
