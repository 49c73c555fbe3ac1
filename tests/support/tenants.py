"""An application, namespace, queue and credential of its own for every test."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from orbit.domain import permissions
from orbit.domain.ids import new_id
from orbit.domain.tokens import make_token
from orbit.kernel.caller import Token
from orbit.store.dsn import Dsn
from orbit.store.session import Session
from orbit.store.sql import provision as sql
from orbit.store.sql.applications import lock_application
from orbit.store.sql.queue_admin import NewQueueRow
from orbit.store.transaction import Tx

EVERY_ACTION = frozenset(permissions.ACTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """What a test owns; `token_text` is the bearer token of a credential with every action on every queue."""

    application_id: bytes
    namespace_id: bytes
    queue_id: bytes
    credential_id: bytes
    token: Token
    token_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    max_concurrency: int = 1_000
    rate_per_second: int = 1_000_000
    max_unfinished_tasks: int = 100_000
    paused: bool = False


def make_tenant(
    session: Session,
    *,
    max_unfinished: int = 10_000_000,
    max_active: int = 100_000,
    limits: QueueLimits | None = None,
) -> Tenant:
    """Make an application with one namespace, queue and credential."""
    application_id, namespace_id = new_id(), new_id()

    def work(tx: Tx) -> None:
        name = f"test-{secrets.token_hex(8)}"
        sql.enter_application(tx, application_id, name, max_unfinished=max_unfinished, max_active=max_active)
        sql.insert_namespace(tx, sql.NamespaceRow(namespace_id, application_id, "main", "test", "ACTIVE"))

    session.run(work)
    return _tenant(session, application_id, namespace_id, limits)


def make_sibling(session: Session, tenant: Tenant) -> Tenant:
    """Make one more namespace of the tenant's application, with a queue and a credential of its own."""
    return _tenant(session, tenant.application_id, make_namespace(session, tenant.application_id), None)


def _tenant(
    session: Session, application_id: bytes, namespace_id: bytes, limits: QueueLimits | None
) -> Tenant:
    queue_id = make_queue(session, application_id, namespace_id, limits=limits)
    token, text = make_credential(session, application_id, namespace_id)
    return Tenant(
        application_id=application_id,
        namespace_id=namespace_id,
        queue_id=queue_id,
        credential_id=token.credential_id,
        token=token,
        token_text=text,
    )


def make_namespace(session: Session, application_id: bytes) -> bytes:
    """Make one more namespace of an application and return its id."""
    namespace_id = new_id()

    def work(tx: Tx) -> None:
        lock_application(tx, application_id)
        name = f"ns-{secrets.token_hex(6)}"
        sql.insert_namespace(tx, sql.NamespaceRow(namespace_id, application_id, name, "test", "ACTIVE"))

    session.run(work)
    return namespace_id


def make_queue(
    session: Session,
    application_id: bytes,
    namespace_id: bytes,
    *,
    name: str | None = None,
    limits: QueueLimits | None = None,
) -> bytes:
    """Make a queue and return its id."""
    queue_id, bounds = new_id(), limits or QueueLimits()

    def work(tx: Tx) -> None:
        lock_application(tx, application_id)
        row = NewQueueRow(
            queue_id=queue_id,
            application_id=application_id,
            namespace_id=namespace_id,
            name=name or f"queue-{secrets.token_hex(6)}",
            paused=bounds.paused,
            max_concurrency=bounds.max_concurrency,
            rate_per_second=bounds.rate_per_second,
            max_unfinished_tasks=bounds.max_unfinished_tasks,
            revision=1,
            created_at=tx.now,
            updated_at=tx.now,
        )
        sql.insert_queue(tx, row)

    session.run(work)
    return queue_id


def make_credential(
    session: Session,
    application_id: bytes,
    namespace_id: bytes,
    *,
    actions: frozenset[str] = EVERY_ACTION,
    queue_ids: tuple[bytes, ...] | None = None,
) -> tuple[Token, str]:
    """Make a credential over all queues, or those given; return what proves it, and its text."""
    credential_id, text, digest = make_token()

    def work(tx: Tx) -> None:
        lock_application(tx, application_id)
        row = sql.NewCredential(
            credential_id=credential_id,
            application_id=application_id,
            namespace_id=namespace_id,
            token_digest=digest,
            actions=" ".join(sorted(actions)),
            all_queues=int(queue_ids is None),
            state="ACTIVE",
            expires_at=None,
            revision=1,
            created_at=tx.now,
        )
        sql.insert_credential(tx, row, queue_ids or ())

    session.run(work)
    return Token(credential_id=credential_id, digest=digest), text


TenantMaker = Callable[..., Tenant]


@pytest.fixture
def session(dsn: Dsn) -> Iterator[Session]:
    """A session of this test on the shared database."""
    opened = Session(dsn)
    yield opened
    opened.close()


@pytest.fixture
def tenants(session: Session) -> TenantMaker:
    """Make tenants; takes what `make_tenant` takes but the session."""

    def make(**options: object) -> Tenant:
        return make_tenant(session, **options)  # type: ignore[arg-type]

    return make


@pytest.fixture
def tenant(tenants: TenantMaker) -> Tenant:
    """This test's own application, namespace, queue and credential."""
    return tenants()
