"""Whether the process lives and is ready; no credential is needed."""

from __future__ import annotations

from orbit.api.envelope import Reply, plain
from orbit.api.exchange import Exchange
from orbit.api.route import Route
from orbit.api.services import Services
from orbit.api.shapes.health import Health
from orbit.domain.errors import Unavailable
from orbit.domain.strictjson import encode
from orbit.store.schema import SchemaMismatch, require_schema


async def get_health(_: Services, exchange: Exchange) -> Reply:
    return plain(exchange.request_id, 200, encode(Health(status="ok")))


async def get_readiness(services: Services, exchange: Exchange) -> Reply:
    """Answer 200 while the database answers and its schema is the one known, else 503."""
    try:
        await services.read(require_schema)
    except SchemaMismatch as error:
        raise Unavailable(str(error)) from None
    except Exception as error:
        raise Unavailable("the database doesn't answer") from error
    return plain(exchange.request_id, 200, encode(Health(status="ok")))


ROUTES = (
    Route(
        method="GET",
        path="/healthz",
        endpoint=get_health,
        summary="The process lives",
        action="",
        answers={200: Health},
        is_plain=True,
    ),
    Route(
        method="GET",
        path="/readyz",
        endpoint=get_readiness,
        summary="The database answers and its schema is known",
        action="",
        answers={200: Health},
        is_plain=True,
        refusals=(503,),
    ),
)
