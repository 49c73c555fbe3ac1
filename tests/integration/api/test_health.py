"""Health, readiness, dispatchers and hints; the API while its database is away; TLS."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import json
import ssl
import threading
from pathlib import Path

import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from orbit.api.access_log import AccessLog
from orbit.api.app import OrbitApi
from orbit.api.routes.table import ROUTES
from orbit.api.server import HttpServer, Tls
from orbit.api.services import open_services
from orbit.domain.ids import new_id
from orbit.domain.permissions import TASKS_READ, WORKERS_READ
from orbit.localdb.instance import Instance
from orbit.runtime.database import Database
from orbit.runtime.hints import Hint, HintKind, HintReceiver
from orbit.runtime.setting_values import Address
from orbit.store.dsn import Dsn, parse_dsn
from orbit.store.session import Session
from tests.support.api import Api, Connection, running_api, submit_body
from tests.support.commitproxy import CommitProxy
from tests.support.pulse import Pulse
from tests.support.tenants import Tenant, make_credential


def register(
    session: Session, url: str, *, age_seconds: int = 0, sessions: int = 0, hints: str | None = None
) -> bytes:
    """Register a dispatcher whose last heartbeat is so old."""
    dispatcher_id = new_id()
    session.run(
        lambda tx: tx.execute(
            "INSERT INTO dispatchers (dispatcher_id, url, hint_address, sessions, started_at, heartbeat_at)"
            " VALUES (%s, %s, %s, %s, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) - INTERVAL %s SECOND)",
            (dispatcher_id, url, hints, sessions, age_seconds),
        )
    )
    return dispatcher_id


async def test_healthy_and_ready(api: Api) -> None:
    """Both need no credential and have no envelope."""
    for path in ("/healthz", "/readyz"):
        answer = await api.ask("GET", path)
        assert (answer.status, answer.json) == (200, {"status": "ok"})
    described = await api.ask("GET", "/openapi.json")
    assert described.json["openapi"].startswith("3.")


async def test_without_a_database_the_process_lives_but_is_not_ready(tenant: Tenant) -> None:
    """/healthz 200, /readyz and commands 503 UNAVAILABLE with Retry-After."""
    async with running_api(parse_dsn("mysql://u:p@127.0.0.1:1/orbit")) as away:
        assert (await away.ask("GET", "/healthz")).status == 200
        for answer in (
            await away.ask("GET", "/readyz"),
            await away.submit(tenant, "k"),
            await away.get(f"/v1/queues/{tenant.queue_id.hex()}", tenant),
        ):
            assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "UNAVAILABLE", "1")


async def test_an_unknown_schema_is_not_ready(instance: Instance) -> None:
    """/readyz tells the operator what to do."""
    instance.create_database("orbit_unready")
    async with running_api(instance.dsn("orbit_unready")) as bare:
        answer = await bare.ask("GET", "/readyz")
    assert (answer.status, answer.code) == (503, "UNAVAILABLE")
    assert "orbit-migrate up" in answer.error["message"]


async def test_live_dispatchers_are_listed(api: Api, tenant: Tenant, session: Session) -> None:
    """Those with a fresh heartbeat, to callers who have to do with workers."""
    live = register(session, "ws://live.test:1", sessions=3)
    dead = register(session, "ws://dead.test:1", age_seconds=16)
    place = (session, tenant.application_id, tenant.namespace_id)
    _, watcher = make_credential(*place, actions=frozenset({WORKERS_READ}))
    _, reader = make_credential(*place, actions=frozenset({TASKS_READ}))
    listed = {entry["id"]: entry for entry in (await api.get("/v1/dispatchers", watcher)).data["dispatchers"]}
    assert (listed[live.hex()]["url"], listed[live.hex()]["sessions"]) == ("ws://live.test:1", 3)
    assert dead.hex() not in listed
    assert (await api.get("/v1/dispatchers", reader)).code == "PERMISSION_DENIED"


async def test_a_submit_is_hinted_before_its_commit(
    dsn: Dsn, tenant: Tenant, session: Session, pulse: Pulse
) -> None:
    """A dispatcher is told while the COMMIT is still on its way: its claim waits for the lock, not for the hint."""
    receiver = await HintReceiver.open()
    register(session, "ws://hinted.test:1", hints=receiver.address)
    reached, go_on = threading.Event(), threading.Event()

    def hold(text: str) -> None:
        if "INSERT INTO receipts" in text and "COMMIT" in text:
            reached.set()
            assert go_on.wait(20), "nobody let the COMMIT go"

    with CommitProxy(dsn) as way, trio.fail_after(20):
        async with running_api(way.dsn) as api, trio.open_nursery() as nursery:
            await api.submit(tenant, "first")
            await hint_for(receiver, tenant)
            way.before_each(hold)
            nursery.start_soon(api.submit, tenant, "second")
            assert (await hint_for(receiver, tenant)).kind is HintKind.SUBMIT
            await trio.to_thread.run_sync(reached.wait)
            assert len(pulse.rows("tasks", application_id=tenant.application_id)) == 1
            go_on.set()
    assert len(pulse.rows("tasks", application_id=tenant.application_id)) == 2
    receiver.close()


async def hint_for(receiver: HintReceiver, tenant: Tenant) -> Hint:
    """Return the next hint about the tenant's application."""
    async for hint in receiver:
        if hint.application == tenant.application_id[:8]:
            return hint
    raise AssertionError


async def test_submits_and_cancels_are_hinted(
    api: Api, tenant: Tenant, session: Session, pulse: Pulse
) -> None:
    """A submit that is ready and a cancel that a worker must learn of are hinted; a delayed submit isn't."""
    receiver = await HintReceiver.open()
    register(session, "ws://hinted.test:1", hints=receiver.address)
    with trio.fail_after(10):
        task = (await api.submit(tenant, "now")).data["task"]["id"]
        assert (await hint_for(receiver, tenant)).kind is HintKind.SUBMIT
        pulse.worker().run_one()
        await api.submit(tenant, "later", delay_ms=60_000)
        await api.post(f"/v1/tasks/{task}:cancel", tenant, {}, key="c")
        assert (await hint_for(receiver, tenant)).kind is HintKind.CANCEL
    receiver.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """A self-signed certificate for 127.0.0.1."""
    folder: Path = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "orbit.test")])
    now = dt.datetime.now(dt.UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    tls = Tls(cert=folder / "cert.pem", key=folder / "key.pem")
    tls.cert.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    tls.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return tls


async def test_tls(dsn: Dsn, tenant: Tenant, certificate: Tls) -> None:
    """Requests over TLS, two on one connection; a plain peer and a broken handshake harm nobody; the end is prompt."""
    async with Database(dsn, writers=1, readers=1) as database, trio.open_nursery() as nursery:
        app = OrbitApi(open_services(database), ROUTES, AccessLog(log_format="json"))
        stop = trio.Event()
        server = HttpServer(app, Address(host="127.0.0.1", port=0), tls=certificate)
        address = await nursery.start(server.serve, stop)
        plain = await trio.open_tcp_stream("127.0.0.1", address.port)
        async with plain:
            await plain.send_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            with trio.fail_after(10):
                with contextlib.suppress(trio.BrokenResourceError):
                    assert b"200" not in await plain.receive_some(100)
        context = ssl.create_default_context(cafile=str(certificate.cert))
        stream = await trio.open_ssl_over_tcp_stream(
            "127.0.0.1", address.port, ssl_context=context, https_compatible=True
        )
        connection = Connection(stream)
        headers = [("Authorization", f"Bearer {tenant.token_text}"), ("Idempotency-Key", "tls")]
        body = json.dumps(submit_body(tenant)).encode()
        for status in (201, 200):
            assert (await connection.ask("POST", "/v1/tasks", headers, body)).status == status
        started = trio.current_time()
        stop.set()
        with trio.fail_after(10):
            assert await stream.receive_some(1) == b""
        await trio.aclose_forcefully(stream)
    assert trio.current_time() - started < 5
