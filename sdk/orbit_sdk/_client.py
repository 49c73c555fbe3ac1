"""The HTTP client: one method per route of docs/http.md."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from orbit_sdk._calls import Calls
from orbit_sdk._http import Origin, PooledTransport, Transport
from orbit_sdk._models import Dispatcher, DispatcherList, Envelope
from orbit_sdk._queues import QueueCalls
from orbit_sdk._tasks import TaskCalls

DEFAULT_URL: Final = "http://127.0.0.1:8080"
_DISPATCHERS: Final = msgspec.json.Decoder(Envelope[DispatcherList], strict=False)
_ANYTHING: Final = msgspec.json.Decoder(Any)


class Client(QueueCalls, TaskCalls):
    """Calls Orbit's HTTP API with one credential, over kept-alive connections. Use as `async with Client(…)`.

    Every method raises `APIError` for a refusal and `TransportError` for a network failure; a write whose answer
    was lost raises `OutcomeUnknown` and is never repeated silently: repeat it with the same content and key
    (see `repeat`). `timeout_seconds` bounds each call as a whole, `connections` the number of parallel ones.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        token: str = "",
        *,
        connections: int = 64,
        timeout_seconds: float = 30.0,
        ssl_context: ssl.SSLContext | None = None,
        transport: Transport | None = None,
    ) -> None:
        origin = Origin.parse(url)
        self._transport = transport or PooledTransport(
            origin, size=connections, timeout_seconds=timeout_seconds, ssl_context=ssl_context
        )
        super().__init__(Calls(self._transport, token, authority=origin.authority, prefix=origin.prefix))
        self.url: Final = url
        self.token: Final = token
        self.ssl_context: Final = ssl_context

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Client:
        """A client for ORBIT_URL with the token in ORBIT_TOKEN, or in the JSON file ORBIT_CREDENTIALS_FILE."""
        env = os.environ if environ is None else environ
        credentials = load_credentials(env)
        url = env.get("ORBIT_URL") or str(credentials.get("url") or DEFAULT_URL)
        return cls(url, str(credentials["token"]))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    async def list_dispatchers(self) -> list[Dispatcher]:
        """The live dispatchers that workers may connect to."""
        return (await self._calls.read("/v1/dispatchers", _DISPATCHERS)).data.dispatchers

    async def is_healthy(self) -> bool:
        """Whether the API process lives (`/healthz`)."""
        return bool((await self._calls.read("/healthz", _ANYTHING)).get("status") == "ok")

    async def check_ready(self) -> None:
        """Return once the API says that it can serve (`/readyz`); raises APIError UNAVAILABLE while it cannot."""
        await self._calls.read("/readyz", _ANYTHING)

    async def read_openapi(self) -> dict[str, Any]:
        """The OpenAPI description of this server."""
        document: dict[str, Any] = await self._calls.read("/openapi.json", _ANYTHING)
        return document


def load_credentials(environ: Mapping[str, str]) -> dict[str, Any]:
    """Read ORBIT_TOKEN, or the JSON object in ORBIT_CREDENTIALS_FILE (`token`, `namespace_id`, `queue_id`, …).

    Raises ValueError where neither gives a token.
    """
    found: dict[str, Any] = {}
    name = environ.get("ORBIT_CREDENTIALS_FILE")
    if name:
        try:
            loaded = json.loads(Path(name).read_text(encoding="utf-8"))
        except ValueError:
            loaded = None
        if not isinstance(loaded, dict):
            raise ValueError(f"{name} does not hold a JSON object")
        found = loaded
    if environ.get("ORBIT_TOKEN"):
        found = {**found, "token": environ["ORBIT_TOKEN"]}
    if not found.get("token"):
        raise ValueError("set ORBIT_TOKEN, or ORBIT_CREDENTIALS_FILE to a JSON file with a token")
    return found
