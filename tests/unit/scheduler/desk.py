"""Sessions and applications without connections or a database."""

from __future__ import annotations

from typing import Any

from orbit.domain.ids import new_id
from orbit.domain.permissions import ALL_QUEUES
from orbit.kernel.caller import Caller, Token
from orbit.pulse.commands import Assignment
from orbit.pulse.session_commands import HandlerOffer, OpenSession, SessionOpened
from orbit.scheduler.application import Application
from orbit.scheduler.messages import Sent
from orbit.scheduler.outbox import Outbox
from orbit.scheduler.session import WorkerSession

APPLICATION, NAMESPACE, QUEUE = new_id(), new_id(), new_id()
TOKEN = Token(credential_id=new_id(), digest=bytes(32))
CALLER = Caller(
    credential_id=TOKEN.credential_id,
    application_id=APPLICATION,
    namespace_id=NAMESPACE,
    actions=frozenset(),
    scope=ALL_QUEUES,
)


def make_session(
    *, capacity: int = 4, generation: int = 1, queue_ids: tuple[bytes, ...] = (QUEUE,), keys: bool = True
) -> WorkerSession:
    """An opened session; its welcome is the first message in its outbox."""
    session = WorkerSession(caller=CALLER, token=TOKEN, outbox=Outbox(lambda: None))
    command = OpenSession(
        token=TOKEN,
        session_id=new_id(),
        worker_ref=new_id(),
        dispatcher_id=new_id(),
        worker_id=new_id(),
        name=None,
        sdk="test",
        queue_ids=queue_ids,
        handlers=(HandlerOffer(name="work", version="1"),),
        capacity=capacity,
        concurrency_keys=keys,
    )
    session.greet(command)
    opened = SessionOpened(
        session_id=command.session_id,
        worker_ref=command.worker_ref,
        generation=generation,
        application_id=APPLICATION,
        namespace_id=NAMESPACE,
    )
    session.open("hello", opened, lease_ms=30_000, renew_ms=10_000)
    return session


def make_application(*sessions: WorkerSession) -> tuple[Application, list[Application]]:
    """An application with these sessions, and the list in which its wishes for a turn gather."""
    wishes: list[Application] = []
    application = Application(APPLICATION, lease_ms=30_000, wake=wishes.append)
    for session in sessions:
        application.join(session)
    return application, wishes


def assignment_for(session: WorkerSession, **fields: Any) -> Assignment:
    defaults: dict[str, Any] = {
        "session_id": session.session_id,
        "attempt_id": new_id(),
        "task_id": new_id(),
        "queue_id": QUEUE,
        "epoch": 1,
        "lease_ms": 30_000,
        "handler": "work",
        "handler_version": "1",
        "payload_version": "1",
        "attempt_number": 1,
        "max_attempts": 1,
        "priority": 0,
        "business_key": None,
        "concurrency_key": None,
        "concurrency_token": None,
        "deadline_ms": None,
    }
    return Assignment(**{**defaults, **fields})


def sent(session: WorkerSession) -> list[Sent]:
    """Take everything out of a session's outbox."""
    messages: list[Sent] = []
    while frame := session.outbox.take():
        session.outbox.sent()
        messages += frame
    return messages
