"""The HTTP transport over TLS on loopback: a trusted server, an untrusted one, a silent one."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from orbit_sdk import OutcomeUnknown, Request, TransportError
from orbit_sdk._http import Origin, PooledTransport

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
WRITE = Request(
    method="POST", target="/", headers=[(b"Host", b"h"), (b"Content-Length", b"0")], body=b"", is_write=True
)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PEM file with a key and a certificate for 127.0.0.1 that nobody has signed but itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(key.private_bytes(pem, *plain) + made.public_bytes(pem))
    return path


@asynccontextmanager
async def listening(handle: Callable[[trio.SocketStream], Awaitable[None]]) -> AsyncIterator[Origin]:
    """The https origin of a server that plays `handle` on every connection."""
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, handle, 0, host="127.0.0.1"))
        yield Origin.parse(f"https://127.0.0.1:{listeners[0].socket.getsockname()[1]}")
        nursery.cancel_scope.cancel()


async def answer_all(certificate: Path, accepted: list[None], stream: trio.SocketStream) -> None:
    """Answer every request of one connection over TLS."""
    accepted.append(None)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    secured = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
    try:
        while await secured.receive_some():
            await secured.send_all(OK)
    except trio.BrokenResourceError:
        await secured.aclose()


async def test_requests_share_a_secured_connection(certificate: Path) -> None:
    """Session tickets that come after the handshake do not make a connection look abandoned."""
    accepted: list[None] = []
    trusting = ssl.create_default_context(cafile=certificate)
    async with listening(partial(answer_all, certificate, accepted)) as origin:
        transport = PooledTransport(origin, ssl_context=trusting)
        for _ in range(3):
            assert (await transport.send(WRITE)).body == b"ok"
        await transport.aclose()
    assert len(accepted) == 1


async def test_an_untrusted_server_gets_no_request(certificate: Path) -> None:
    """Nothing was sent, so a write is not in doubt."""
    async with listening(partial(answer_all, certificate, [])) as origin:
        with pytest.raises(TransportError, match="certificate") as caught:
            await PooledTransport(origin).send(WRITE)
    assert not isinstance(caught.value, OutcomeUnknown)


async def test_a_silent_handshake_ends_at_the_time_limit(autojump_clock: trio.testing.MockClock) -> None:
    """The limit of a connect covers the handshake; the socket is closed."""
    autojump_clock.autojump_threshold = 0.05
    ended = trio.Event()

    async def swallow(stream: trio.SocketStream) -> None:
        while await stream.receive_some():
            pass
        ended.set()

    async with listening(swallow) as origin:
        with pytest.raises(TransportError, match="timed out") as caught:
            await PooledTransport(origin).send(WRITE)
        assert trio.current_time() < 10
        await ended.wait()
    assert not isinstance(caught.value, OutcomeUnknown)
