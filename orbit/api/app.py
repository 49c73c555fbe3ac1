"""The Quart application: the routing table turned into rules, and every failure into the envelope."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

import trio
from quart import Response, request
from quart_trio import QuartTrio
from quart_trio.asgi import TrioASGIHTTPConnection
from werkzeug.datastructures import Headers
from werkzeug.exceptions import HTTPException
from werkzeug.exceptions import MethodNotAllowed as WrongMethod
from werkzeug.routing import BaseConverter

from orbit.api.access_log import AccessLog
from orbit.api.caller import bearer_token
from orbit.api.envelope import Reply, failed, plain
from orbit.api.errors import failure_of, is_our_fault, unwrap
from orbit.api.exchange import Direct, Exchange
from orbit.api.openapi import describe
from orbit.api.query import parse_query
from orbit.api.route import Endpoint, Route
from orbit.api.services import Services
from orbit.domain.errors import MethodNotAllowed, NotFound, RequestError
from orbit.domain.strictjson import encode
from orbit.runtime.logging import get_logger

_EXCHANGE = "orbit.exchange"


class _Id(BaseConverter):
    regex = "[0-9a-f]{32}"


class _Number(BaseConverter):
    regex = "[1-9][0-9]{0,19}"


class OrbitApi(QuartTrio):
    """The HTTP API over its services.

    The framework keeps one task per request here, not three: bodies are read by the endpoints, a peer that goes away
    doesn't interrupt a command that has been sent, and the server calls hot endpoints directly.
    """

    def __init__(self, services: Services, routes: Iterable[Route], access_log: AccessLog) -> None:
        super().__init__("orbit.api", static_folder=None)
        self.services = services
        self._access_log = access_log
        self.asgi_http_class = _Connection
        self._hot: dict[tuple[bytes, bytes], Endpoint] = {}
        self.url_map.converters.update(id=_Id, number=_Number)
        self.url_map.merge_slashes = False
        self.register_error_handler(HTTPException, _on_http_error)
        self.register_error_handler(Exception, _on_error)
        for route in routes:
            self._add(route)
        description = encode(describe(routes))
        self._add_view("GET", "/openapi.json", "openapi", lambda exchange: _described(exchange, description))

    async def call(self, endpoint: Endpoint, exchange: Exchange) -> Reply:
        """Run an endpoint; whatever fails becomes an answer."""
        try:
            reply = await endpoint(self.services, exchange)
        except Exception as error:  # noqa: BLE001 - every failure becomes an answer
            reply = failure_reply(exchange, error)
        await exchange.body.drain()
        return reply

    def direct(self, method: bytes, target: bytes) -> Direct | None:
        """Return the way to a hot endpoint, None for everything else."""
        endpoint = self._hot.get((method, target))
        return None if endpoint is None else partial(self._call_directly, endpoint)

    def note(self, exchange: Exchange, status: int, size: int, started: float) -> None:
        """Write the request's line into the access log; `started` is of `time.perf_counter`."""
        self._access_log.add(
            request_id=exchange.request_id,
            method=exchange.method,
            path=exchange.path,
            status=status,
            seconds=time.perf_counter() - started,
            size=size,
        )

    async def _call_directly(self, endpoint: Endpoint, exchange: Exchange) -> Reply:
        started = time.perf_counter()
        reply = await self.call(endpoint, exchange)
        self.note(exchange, reply.status, len(reply.body), started)
        return reply

    def _add(self, route: Route) -> None:
        if route.is_hot:
            self._hot[route.method.encode(), route.path.encode()] = route.endpoint
        endpoint = route.endpoint if route.query or route.is_plain else _without_query(route.endpoint)
        self._add_view(route.method, route.rule, route.name, lambda exchange: self.call(endpoint, exchange))

    def _add_view(
        self, method: str, rule: str, name: str, answer: Callable[[Exchange], Awaitable[Reply]]
    ) -> None:
        async def view(**params: str) -> Response:
            exchange = _present()
            exchange.params = params
            return _response(await answer(exchange))

        self.add_url_rule(rule, name, view, methods=[method], provide_automatic_options=False)


class _Connection(TrioASGIHTTPConnection):
    """One request on its way through the framework's routing."""

    app: OrbitApi

    async def __call__(self, receive: Any, send: Any) -> None:
        started = time.perf_counter()
        scope: Any = self.scope
        exchange = scope[_EXCHANGE] = Exchange.of_scope(scope, receive)
        response = await self.app.handle_request(self._create_request_from_scope(send))
        await exchange.body.drain()
        await self._send_response(send, response)
        self.app.note(exchange, response.status_code, response.content_length or 0, started)


def _without_query(endpoint: Endpoint) -> Endpoint:
    """Refuse parameters for an endpoint that takes none: whoever sends them believes that they do something."""

    async def checked(services: Services, exchange: Exchange) -> Reply:
        if exchange.query:
            await services.door.confirm(bearer_token(exchange))
            parse_query(exchange.query, ())
        return await endpoint(services, exchange)

    return checked


def failure_reply(exchange: Exchange, error: BaseException) -> Reply:
    """Turn a failure into the caller's answer, and log it if it is ours."""
    error = unwrap(error)
    if is_our_fault(error):
        get_logger().error(
            "request_failed",
            request_id=exchange.request_id,
            method=exchange.method,
            path=exchange.path,
            exc_info=error,
        )
    return failed(exchange.request_id, failure_of(error))


def _present() -> Exchange:
    """Return the exchange of the request that the framework is handling."""
    scope: Any = request.scope
    exchange: Exchange = scope[_EXCHANGE]
    return exchange


def _response(reply: Reply) -> Response:
    headers = Headers([(name.decode(), value.decode()) for name, value in reply.headers])
    return Response(reply.body, reply.status, headers)


async def _described(exchange: Exchange, description: bytes) -> Reply:
    await trio.lowlevel.checkpoint()
    return plain(exchange.request_id, 200, description)


async def _on_http_error(error: HTTPException) -> Response:
    """Answer what the framework itself refuses: unknown paths, wrong methods."""
    exchange = _present()
    refusal: RequestError = NotFound("no such resource")
    if isinstance(error, WrongMethod):
        refusal = MethodNotAllowed("the resource doesn't take this method")
    reply = failed(exchange.request_id, failure_of(refusal))
    response = _response(reply)
    if isinstance(error, WrongMethod) and error.valid_methods:
        response.headers["Allow"] = ", ".join(sorted(error.valid_methods))
    return response


async def _on_error(error: Exception) -> Response:
    exchange = _present()
    return _response(failure_reply(exchange, error))
