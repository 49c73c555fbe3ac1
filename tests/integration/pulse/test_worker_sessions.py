"""Open, take over, check and close worker sessions on a real database."""

from __future__ import annotations

from typing import Any

from orbit.domain.errors import NotFound, PermissionDenied, StateConflict, Unauthenticated
from orbit.domain.ids import id_text, new_id
from orbit.kernel.caller import Token
from orbit.pulse.session_commands import HandlerOffer, OpenSession, SessionOpened
from orbit.pulse.sessions import SessionStanding, check_sessions, close_sessions, open_sessions
from orbit.store.session import Session
from tests.support.pulse import Pulse, succeeded
from tests.support.tenants import Tenant, TenantMaker, make_credential, make_queue


def opening(tenant: Tenant, **fields: Any) -> OpenSession:
    defaults: dict[str, Any] = {
        "token": tenant.token,
        "session_id": new_id(),
        "worker_ref": new_id(),
        "dispatcher_id": new_id(),
        "worker_id": new_id(),
        "name": None,
        "sdk": "test/1",
        "queue_ids": (tenant.queue_id,),
        "handlers": (HandlerOffer(name="work", version="1"),),
        "capacity": 5,
        "concurrency_keys": True,
    }
    return OpenSession(**{**defaults, **fields})


def open_each(session: Session, tenant: Tenant, *commands: OpenSession) -> list[Any]:
    return session.run_group(lambda tx, group: open_sessions(tx, tenant.application_id, group), commands)


def test_the_same_open_again_changes_nothing(session: Session, tenant: Tenant, pulse: Pulse) -> None:
    """A COMMIT whose answer was lost is resolved by the session's id: same generation, same registration."""
    command = opening(tenant)
    first, again = (succeeded(open_each(session, tenant, command)[0]) for _ in range(2))
    assert first == again
    assert first.generation == 1
    assert pulse.row("worker_sessions", worker_ref=command.worker_ref).session_id == command.session_id


def test_a_group_decides_in_its_order(session: Session, tenant: Tenant, pulse: Pulse) -> None:
    """Two sessions of one new worker, one of another, one refused: each gets its own outcome."""
    worker_id = new_id()
    commands = [
        opening(tenant, worker_id=worker_id),
        opening(tenant, worker_id=worker_id),
        opening(tenant),
        opening(tenant, worker_id=worker_id, concurrency_keys=False),
    ]
    one, two, other, refused = open_each(session, tenant, *commands)
    assert (one.generation, two.generation, other.generation) == (1, 2, 1)
    assert one.worker_ref == two.worker_ref
    assert isinstance(refused, StateConflict)
    row = pulse.row("worker_sessions", worker_ref=one.worker_ref)
    assert (row.session_id, row.generation) == (two.session_id, 2)


def test_what_a_registration_fixes(session: Session, tenant: Tenant) -> None:
    """Queues, handlers with effect and eagerness, use of keys; not order, capacity, name or SDK."""
    second = make_queue(session, tenant.application_id, tenant.namespace_id)
    offers = (HandlerOffer(name="a", version="1"), HandlerOffer(name="b", version="1", effect="PURE"))
    worker_id = new_id()
    base: dict[str, Any] = {
        "worker_id": worker_id,
        "queue_ids": (tenant.queue_id, second),
        "handlers": offers,
    }
    succeeded(open_each(session, tenant, opening(tenant, **base))[0])
    same = {
        **base,
        "queue_ids": (second, tenant.queue_id),
        "handlers": offers[::-1],
        "capacity": 9,
        "name": "n",
    }
    assert succeeded(open_each(session, tenant, opening(tenant, **same))[0]).generation == 2
    for change in (
        {"queue_ids": (second,)},
        {"handlers": offers[:1]},
        {"handlers": (offers[0], HandlerOffer(name="b", version="2", effect="PURE"))},
        {"handlers": (offers[0], HandlerOffer(name="b", version="1"))},
        {"handlers": (offers[0], HandlerOffer(name="b", version="1", effect="PURE", eager=True))},
        {"concurrency_keys": False},
    ):
        outcome = open_each(session, tenant, opening(tenant, **{**base, **change}))[0]
        assert isinstance(outcome, StateConflict), change


def test_who_may_open(session: Session, tenant: Tenant, tenants: TenantMaker) -> None:
    """Both actions, one's own queues in scope, a valid credential of this application."""
    stranger = tenants()
    scoped, _ = make_credential(
        session, tenant.application_id, tenant.namespace_id, queue_ids=(tenant.queue_id,)
    )
    hidden = make_queue(session, tenant.application_id, tenant.namespace_id)
    connect_only, _ = make_credential(
        session, tenant.application_id, tenant.namespace_id, actions=frozenset({"workers:connect"})
    )
    consume_only, _ = make_credential(
        session, tenant.application_id, tenant.namespace_id, actions=frozenset({"workers:consume"})
    )
    forged = Token(credential_id=tenant.token.credential_id, digest=bytes(32))
    wanted = [
        (opening(tenant, token=connect_only), PermissionDenied),
        (opening(tenant, token=consume_only), PermissionDenied),
        (opening(tenant, token=forged), Unauthenticated),
        (opening(tenant, token=stranger.token), NotFound),
        (opening(tenant, token=scoped, queue_ids=(tenant.queue_id, hidden)), NotFound),
        (opening(tenant, queue_ids=(stranger.queue_id,)), NotFound),
        (opening(tenant, token=scoped), SessionOpened),
    ]
    outcomes = open_each(session, tenant, *(command for command, _ in wanted))
    assert [type(outcome) for outcome in outcomes] == [kind for _, kind in wanted]
    assert id_text(hidden) in outcomes[4].message


def test_standing(session: Session, tenant: Tenant) -> None:
    """Live, superseded, and every way in which a credential may stop being valid."""
    token, _ = make_credential(session, tenant.application_id, tenant.namespace_id)
    worker_id = new_id()
    old, new = (
        succeeded(open_each(session, tenant, opening(tenant, token=token, worker_id=worker_id))[0])
        for _ in range(2)
    )
    other = succeeded(open_each(session, tenant, opening(tenant))[0])
    tokens = {old.session_id: token, new.session_id: token, other.session_id: tenant.token}

    def standings() -> list[SessionStanding]:
        found = session.run(lambda tx: check_sessions(tx, tokens))
        return [found[session_id] for session_id in tokens]

    live, revoked, superseded = SessionStanding.LIVE, SessionStanding.REVOKED, SessionStanding.SUPERSEDED
    assert standings() == [superseded, live, live]
    for change, restored in (
        ("state = 'REVOKED'", "state = 'ACTIVE'"),
        ("expires_at = UTC_TIMESTAMP(6)", "expires_at = NULL"),
        ("actions = 'workers:connect'", "actions = 'workers:connect workers:consume'"),
        ("token_digest = REPEAT('x', 32)", None),
    ):
        _set(session, token, change)
        assert standings() == [superseded, revoked, live], change
        if restored is not None:
            _set(session, token, restored)
            assert standings() == [superseded, live, live], restored


def _set(session: Session, token: Token, change: str) -> None:
    statement = f"UPDATE credentials SET {change} WHERE credential_id = %s"
    assert session.run(lambda tx: tx.execute(statement, (token.credential_id,))) == 1


def test_only_the_present_session_can_be_closed(session: Session, tenant: Tenant, pulse: Pulse) -> None:
    """The end of a session whose place was taken says nothing about its successor."""
    worker_id = new_id()
    old, new = (
        succeeded(open_each(session, tenant, opening(tenant, worker_id=worker_id))[0]) for _ in range(2)
    )
    assert session.run(lambda tx: close_sessions(tx, [old.session_id])) == 0
    assert pulse.row("worker_sessions", worker_ref=new.worker_ref).ended_at is None
    assert session.run(lambda tx: close_sessions(tx, [new.session_id])) == 1
    assert session.run(lambda tx: close_sessions(tx, [new.session_id])) == 0
    reopened = succeeded(open_each(session, tenant, opening(tenant, worker_id=worker_id))[0])
    assert reopened.generation == 3
    assert pulse.row("worker_sessions", worker_ref=new.worker_ref).ended_at is None
