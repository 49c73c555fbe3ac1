"""Bearer tokens, and the way from a credential to its application's line of commands."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from orbit.api.exchange import Exchange
from orbit.domain.errors import InvalidArgument, Unauthenticated
from orbit.domain.keys import check_idempotency_key
from orbit.kernel.caller import Token
from orbit.kernel.identity import read_caller
from orbit.runtime.database import Database

ROUTES_MAX: Final = 4_096


def bearer_token(exchange: Exchange) -> Token:
    """Return the token of the Authorization header.

    Raises: Unauthenticated without a well-formed one.
    """
    try:
        value = exchange.header(b"authorization", "Authorization")
    except InvalidArgument:
        raise Unauthenticated("more than one Authorization header") from None
    return Token.of_header(value)


def idempotency_key(exchange: Exchange) -> str:
    """Return the identity of a writing command; InvalidArgument without a well-formed one."""
    key = exchange.header(b"idempotency-key", "Idempotency-Key")
    if key is None:
        raise InvalidArgument("is required", field="Idempotency-Key")
    return check_idempotency_key(key)


class Door:
    """Remembers which application a token leads to; it grants nothing.

    A credential never changes its application, so the memory can't be wrong about the way; whether the credential
    may still do anything is read inside each command's transaction.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: OrderedDict[Token, bytes] = OrderedDict()

    async def application_of(self, token: Token) -> bytes:
        """Return the application's id; Unauthenticated for a token that isn't valid."""
        known = self._known.get(token)
        if known is not None:
            return known
        application_id = await self.confirm(token)
        self._known[token] = application_id
        if len(self._known) > ROUTES_MAX:
            self._known.popitem(last=False)
        return application_id

    async def confirm(self, token: Token) -> bytes:
        """Read the credential anew; Unauthenticated if it isn't valid now."""
        try:
            caller = await self._database.read(lambda tx: read_caller(tx, token))
        except Unauthenticated:
            self._known.pop(token, None)
            raise
        return caller.application_id
