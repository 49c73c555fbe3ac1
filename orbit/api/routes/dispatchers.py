"""The endpoint by which workers find a dispatcher."""

from __future__ import annotations

from orbit.api.caller import bearer_token
from orbit.api.envelope import Reply, success
from orbit.api.exchange import Exchange
from orbit.api.route import Route
from orbit.api.services import Services
from orbit.api.shapes.dispatchers import DispatcherList, render_list
from orbit.domain.permissions import WORKERS_CONNECT, WORKERS_READ
from orbit.pulse.queries import read_dispatchers


async def list_dispatchers(services: Services, exchange: Exchange) -> Reply:
    token = bearer_token(exchange)
    views = await services.read(lambda tx: read_dispatchers(tx, token))
    return success(exchange.request_id, 200, render_list(views))


ROUTES = (
    Route(
        method="GET",
        path="/v1/dispatchers",
        endpoint=list_dispatchers,
        summary="List the live dispatchers, the least busy first",
        action=f"{WORKERS_CONNECT} or {WORKERS_READ}",
        answers={200: DispatcherList},
    ),
)
