"""The typed commands of worker sessions and their outcomes: open, resume, renew. Units as in `commands`."""

from __future__ import annotations

from dataclasses import dataclass

from orbit.kernel.caller import Token
from orbit.pulse.commands import Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOffer:
    name: str
    version: str
    effect: str | None = None
    eager: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession:
    """Register a worker process, or take its older session's place (generation + 1)."""

    token: Token
    session_id: bytes
    worker_ref: bytes
    dispatcher_id: bytes
    worker_id: bytes
    name: str | None
    sdk: str
    queue_ids: tuple[bytes, ...]
    handlers: tuple[HandlerOffer, ...]
    capacity: int
    concurrency_keys: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOpened:
    session_id: bytes
    worker_ref: bytes
    generation: int
    application_id: bytes
    namespace_id: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRef:
    attempt_id: bytes
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeSession:
    session_id: bytes
    attempts: tuple[AttemptRef, ...]
    lease_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseState:
    """One attempt's answer to resume or renew; `owned` false means lost (STALE_ATTEMPT)."""

    attempt_id: bytes
    epoch: int
    owned: bool
    state: str = ""
    lease_ms: int = 0
    cancel_requested: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """`resend` are live LEASED attempts of the worker that it did not list."""

    attempts: tuple[LeaseState, ...]
    resend: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewLeases:
    """Renew what one session holds; needs no application lock."""

    session_id: bytes
    attempts: tuple[AttemptRef, ...]
    lease_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    attempts: tuple[LeaseState, ...]
