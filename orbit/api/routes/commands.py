"""How every writing endpoint begins: who asks, under which identity, with what command."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from orbit.api.caller import bearer_token, idempotency_key
from orbit.api.exchange import Exchange
from orbit.api.services import Services
from orbit.domain.errors import RequestError
from orbit.kernel.caller import Token

Command = TypeVar("Command")


async def receive_command(
    services: Services, exchange: Exchange, parse: Callable[[Token, str, bytes], Command]
) -> tuple[bytes, Command]:
    """Return the application's id and the parsed command of a request with an Idempotency-Key.

    Raises: Unauthenticated before anything is said about key and body; InvalidArgument, PayloadTooLarge.
    """
    token = bearer_token(exchange)
    application_id = await services.door.application_of(token)
    try:
        key = idempotency_key(exchange)
        return application_id, parse(token, key, await exchange.body.read())
    except RequestError:
        # The token was valid once; whoever sends it now learns about his body only if it still is.
        await services.door.confirm(token)
        raise
