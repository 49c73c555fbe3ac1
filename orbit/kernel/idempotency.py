"""Replay, conflict or first: what an idempotency identity says about a command (02-pulse, Idempotency)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from orbit.domain.errors import IdempotencyConflict, OrbitError
from orbit.kernel.caller import Caller, Token
from orbit.store.sql.receipts import ReceiptRow, select_receipts
from orbit.store.transaction import Tx


class Identified(Protocol):
    """A command with the two parts of its identity."""

    @property
    def token(self) -> Token: ...

    @property
    def idempotency_key(self) -> str: ...


def read_receipts(
    tx: Tx, callers: Mapping[Token, Caller | OrbitError], commands: Iterable[Identified], action: str
) -> dict[bytes, ReceiptRow]:
    """Read what earlier commands of the same identities left, by identity; those of unknown callers have none."""
    identities = {
        caller.identity(action, command.idempotency_key)
        for command in commands
        if isinstance(caller := callers[command.token], Caller)
    }
    return select_receipts(tx, sorted(identities))


def replayed(receipt: ReceiptRow | None, request_digest: bytes) -> ReceiptRow | None:
    """Return the receipt of a repeated command, None for a first one.

    Raises:
        IdempotencyConflict: the identity was used with other content.
    """
    if receipt is not None and receipt.request_digest != request_digest:
        raise IdempotencyConflict("the idempotency key was used before with other content")
    return receipt
