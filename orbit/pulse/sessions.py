"""Open, take over, check and close worker sessions (03-worker-protocol)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from orbit.domain.errors import NotFound, OrbitError, StateConflict
from orbit.domain.ids import id_text
from orbit.domain.permissions import WORKERS_CONNECT, WORKERS_CONSUME
from orbit.kernel.caller import Caller, Token
from orbit.kernel.identity import is_valid, read_callers
from orbit.pulse.session_commands import HandlerOffer, OpenSession, SessionOpened
from orbit.store.sql.applications import lock_application
from orbit.store.sql.queues import QueueRow, select_queues
from orbit.store.sql.sessions import (
    SessionRow,
    WorkerRow,
    select_session_credentials,
    select_workers,
    update_ended,
    upsert_sessions,
)
from orbit.store.transaction import Tx

_Registration = tuple[bytes, bytes, bytes]


class SessionStanding(Enum):
    """What a check finds about an open session."""

    LIVE = "it speaks for its worker"
    SUPERSEDED = "a newer session took its place"
    REVOKED = "its credential may not connect any more"


def open_sessions(
    tx: Tx, application_id: bytes, commands: Sequence[OpenSession]
) -> list[SessionOpened | OrbitError]:
    """Register workers, or let new sessions of known workers take over; idempotent on `session_id`.

    *Locks* the application. *Writes* `worker_sessions`. Outcomes may be Unauthenticated, PermissionDenied, NotFound
    naming the first queue that is missing or out of scope, and StateConflict for another registration of the worker.
    """
    lock_application(tx, application_id)
    callers = read_callers(tx, [command.token for command in commands])
    queues = select_queues(tx, sorted({queue_id for command in commands for queue_id in command.queue_ids}))
    known = _read_workers(tx, callers, commands)
    rows: dict[_Registration, SessionRow] = {}
    outcomes: list[SessionOpened | OrbitError] = []
    for command in commands:
        caller = callers[command.token]
        try:
            if isinstance(caller, OrbitError):
                raise caller
            _check(caller, application_id, command, queues)
            outcomes.append(_open(tx, caller, command, known, rows))
        except OrbitError as error:
            outcomes.append(error)
    upsert_sessions(tx, rows.values())
    return outcomes


def close_sessions(tx: Tx, session_ids: Sequence[bytes]) -> int:
    """Mark sessions as ended; return how many. Leases are untouched: only their own clock ends them."""
    return update_ended(tx, session_ids) if session_ids else 0


def check_sessions(tx: Tx, tokens: Mapping[bytes, Token]) -> dict[bytes, SessionStanding]:
    """Tell how each open session stands, given the token it was opened with; one batched read."""
    if not tokens:
        return {}
    found = select_session_credentials(tx, list(tokens))
    standings = {}
    for session_id, token in tokens.items():
        row = found.get(session_id)
        if row is None:
            standings[session_id] = SessionStanding.SUPERSEDED
        elif (
            is_valid(row, tx.now)
            and hmac.compare_digest(row.token_digest, token.digest)
            and {WORKERS_CONNECT, WORKERS_CONSUME} <= set(row.actions.split())
        ):
            standings[session_id] = SessionStanding.LIVE
        else:
            standings[session_id] = SessionStanding.REVOKED
    return standings


def registration_digest(
    queue_ids: Iterable[bytes], handlers: Iterable[HandlerOffer], *, concurrency_keys: bool
) -> bytes:
    """Return the digest of what one worker process may never change: queues, handlers, use of keys."""
    digest = hashlib.sha256(b"keys" if concurrency_keys else b"keyless")
    for queue_id in sorted(queue_ids):
        digest.update(b"\x00q" + queue_id)
    for offer in sorted(handlers, key=lambda offer: (offer.name, offer.version)):
        words = (offer.name, offer.version, offer.effect or "", "eager" if offer.eager else "")
        digest.update(b"\x00h" + "\x00".join(words).encode())
    return digest.digest()


def _read_workers(
    tx: Tx, callers: Mapping[Token, Caller | OrbitError], commands: Sequence[OpenSession]
) -> dict[_Registration, WorkerRow]:
    registrations = {
        (caller.namespace_id, caller.credential_id, command.worker_id)
        for command in commands
        if isinstance(caller := callers[command.token], Caller)
    }
    return select_workers(tx, sorted(registrations)) if registrations else {}


def _check(
    caller: Caller, application_id: bytes, command: OpenSession, queues: Mapping[bytes, QueueRow]
) -> None:
    if caller.application_id != application_id:
        raise NotFound("application not found")
    caller.require(WORKERS_CONNECT)
    caller.require(WORKERS_CONSUME)
    for queue_id in command.queue_ids:
        queue = queues.get(queue_id)
        if queue is None or not caller.may_see(queue.namespace_id, queue_id):
            raise NotFound(f"queue {id_text(queue_id)} not found")


def _open(
    tx: Tx,
    caller: Caller,
    command: OpenSession,
    known: dict[_Registration, WorkerRow],
    rows: dict[_Registration, SessionRow],
) -> SessionOpened:
    identity = (caller.namespace_id, caller.credential_id, command.worker_id)
    digest = registration_digest(
        command.queue_ids, command.handlers, concurrency_keys=command.concurrency_keys
    )
    worker = known.get(identity)
    if worker is None:
        worker = WorkerRow(command.worker_ref, *identity, digest, command.session_id, 1)
    elif worker.registration_digest != digest:
        raise StateConflict("this worker is registered with other queues, handlers or concurrency_keys")
    elif worker.session_id != command.session_id:
        worker = worker._replace(session_id=command.session_id, generation=worker.generation + 1)
    known[identity] = worker
    rows[identity] = _row(tx, caller, command, worker)
    return SessionOpened(
        session_id=worker.session_id,
        worker_ref=worker.worker_ref,
        generation=worker.generation,
        application_id=caller.application_id,
        namespace_id=caller.namespace_id,
    )


def _row(tx: Tx, caller: Caller, command: OpenSession, worker: WorkerRow) -> SessionRow:
    return SessionRow(
        worker_ref=worker.worker_ref,
        application_id=caller.application_id,
        namespace_id=caller.namespace_id,
        credential_id=caller.credential_id,
        worker_id=command.worker_id,
        registration_digest=worker.registration_digest,
        session_id=worker.session_id,
        generation=worker.generation,
        dispatcher_id=command.dispatcher_id,
        name=command.name,
        sdk=command.sdk,
        capacity=command.capacity,
        concurrency_keys=command.concurrency_keys,
        connected_at=tx.now,
    )
