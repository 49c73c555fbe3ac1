"""What all lists share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from orbit.api.caller import bearer_token
from orbit.api.exchange import Exchange
from orbit.api.route import Parameter
from orbit.api.services import Services
from orbit.domain.errors import InvalidArgument
from orbit.domain.limits import CURSOR_MAX_CHARS, PAGE_DEFAULT, PAGE_MAX
from orbit.kernel.caller import Token

Query = TypeVar("Query")

LIMIT = Parameter(
    name="limit",
    description="most items on a page",
    schema={"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": PAGE_DEFAULT},
)
CURSOR = Parameter(
    name="cursor",
    description="`next_cursor` of the page before, with the same filters",
    schema={"type": "string", "maxLength": CURSOR_MAX_CHARS},
)


async def receive_query(
    services: Services, exchange: Exchange, parse: Callable[[Exchange], Query]
) -> tuple[Token, Query]:
    """Return who asks and what for.

    Raises: Unauthenticated before anything is said about the parameters; InvalidArgument.
    """
    token = bearer_token(exchange)
    try:
        return token, parse(exchange)
    except InvalidArgument:
        await services.door.confirm(token)
        raise
