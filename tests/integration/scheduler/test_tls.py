"""WSS with the operator's certificate."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from trio_websocket import connect_websocket

from tests.integration.scheduler.conftest import MakeService
from tests.support.frames import PATH, SUBPROTOCOL, FrameWorker, bearer
from tests.support.pulse import Pulse
from tests.support.tenants import Tenant


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = tmp_path / "cert.pem", tmp_path / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return paths


async def test_a_worker_connects_over_tls(
    make_service: MakeService, certificate: tuple[Path, Path], tenant: Tenant, pulse: Pulse
) -> None:
    """The advertised URL is wss; a task goes through; plain bytes on that port harm nobody."""
    pulse.submit()
    trust = ssl.create_default_context(cafile=str(certificate[0]))
    async with make_service(certificate=certificate[0], key=certificate[1]) as service:
        assert service.url.startswith("wss://")
        plain = await trio.open_tcp_stream("127.0.0.1", service.port)
        await plain.send_all(b"GET / HTTP/1.1\r\n\r\n")
        await plain.aclose()
        async with trio.open_nursery() as nursery:
            socket = await connect_websocket(
                nursery,
                "127.0.0.1",
                service.port,
                PATH,
                use_ssl=trust,
                subprotocols=[SUBPROTOCOL],
                extra_headers=bearer(tenant.token_text),
            )
            worker = FrameWorker(socket, tenant)
            await worker.welcome()
            await worker.work_one()
            await socket.aclose()
