"""The HTTP API as it is deployed, in this process: the real server on a free port, over the session's database."""

from __future__ import annotations

import io
import json
import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import h11
import pytest
import trio

from orbit.api.access_log import AccessLog
from orbit.api.app import OrbitApi
from orbit.api.routes.table import ROUTES
from orbit.api.server import HttpServer
from orbit.api.services import Services, open_services
from orbit.runtime.database import Database
from orbit.runtime.setting_values import Address
from orbit.store.dsn import Dsn
from tests.support.tenants import Tenant

Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Answer:
    """A response; `data` and `error` are the envelope's parts, None where it has none."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def data(self) -> Any:
        return self.json.get("data")

    @property
    def error(self) -> Any:
        return self.json.get("error")

    @property
    def code(self) -> str | None:
        return None if self.error is None else self.error["code"]

    @property
    def field(self) -> str | None:
        return None if self.error is None else self.error.get("details", {}).get("field")


class Connection:
    """One keep-alive connection to the API."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._parser = h11.Connection(h11.CLIENT)

    async def ask(self, method: str, target: str, headers: Headers = (), body: bytes = b"") -> Answer:
        """Send one request and read its answer."""
        given = [("Host", "orbit.test"), *headers]
        if method == "POST":
            given.append(("Content-Length", str(len(body))))
        request = h11.Request(method=method, target=target, headers=given)
        data = self._parser.send(request) or b""
        data += self._parser.send(h11.Data(data=body)) or b""
        await self.stream.send_all(data + (self._parser.send(h11.EndOfMessage()) or b""))
        answer = await self.read()
        if self._parser.our_state is h11.DONE and self._parser.their_state is h11.DONE:
            self._parser.start_next_cycle()
        return answer

    async def read(self) -> Answer:
        """Read one answer."""
        status, headers, body = 0, {}, bytearray()
        while True:
            event = self._parser.next_event()
            if event is h11.NEED_DATA:
                self._parser.receive_data(bytes(await self.stream.receive_some(65_536)))
            elif isinstance(event, h11.Response):
                status = event.status_code
                headers = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                return Answer(status, headers, bytes(body))
            elif isinstance(event, h11.ConnectionClosed):
                raise EOFError("the server closed the connection without an answer")

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self.stream)


@dataclass(slots=True)
class Api:
    """A running API."""

    address: Address
    services: Services
    stop: trio.Event
    log: io.StringIO

    async def connect(self) -> Connection:
        return Connection(await trio.open_tcp_stream(self.address.host, self.address.port))

    async def ask(self, method: str, target: str, headers: Headers = (), body: bytes = b"") -> Answer:
        """Send one request on a connection of its own, within 20 s."""
        connection = await self.connect()
        try:
            with trio.fail_after(20):
                return await connection.ask(method, target, headers, body)
        finally:
            await connection.aclose()

    async def get(self, target: str, who: Tenant | str) -> Answer:
        return await self.ask("GET", target, [bearer(who)])

    async def post(self, target: str, who: Tenant | str, body: Any, *, key: str | None = None) -> Answer:
        """Send a body (bytes go as they are) under an idempotency key, if one is given."""
        headers = [bearer(who), ("Content-Type", "application/json")]
        if key is not None:
            headers.append(("Idempotency-Key", key))
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.ask("POST", target, headers, data)

    async def submit(self, tenant: Tenant, key: str, **fields: Any) -> Answer:
        """Submit a task to the tenant's queue."""
        return await self.post("/v1/tasks", tenant, submit_body(tenant, **fields), key=key)


def bearer(who: Tenant | str) -> tuple[str, str]:
    return "Authorization", f"Bearer {who if isinstance(who, str) else who.token_text}"


def submit_body(tenant: Tenant, **fields: Any) -> dict[str, Any]:
    """Return a submit's body; a field given as None is left out."""
    body = {
        "queue_id": tenant.queue_id.hex(),
        "handler": "work",
        "handler_version": "1",
        "payload_version": "1",
        "payload": {"n": 1},
        **fields,
    }
    return {name: value for name, value in body.items() if value is not None}


@asynccontextmanager
async def running_api(dsn: Dsn) -> AsyncIterator[Api]:
    """Start the API on a free port; the end stops it as SIGTERM would."""
    log = io.StringIO()

    def report(event: str, error: BaseException) -> None:
        traceback.print_exception(error)

    async with Database(dsn, writers=3, readers=4, report=report) as database:
        services = open_services(database)
        access_log = AccessLog(log_format="json", stream=log)
        server = HttpServer(OrbitApi(services, ROUTES, access_log), Address(host="127.0.0.1", port=0))
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(services.hints.run)
            async with trio.open_nursery() as serving:
                address = await serving.start(server.serve, stop)
                try:
                    yield Api(address, services, stop, log)
                finally:
                    stop.set()
            access_log.flush()
            nursery.cancel_scope.cancel()


@pytest.fixture
async def api(dsn: Dsn) -> AsyncIterator[Api]:
    """A running API of this test."""
    async with running_api(dsn) as running:
        yield running
