"""An application of its own for every measurement, on tables that hold nothing else."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

from orbit.domain.ids import id_text, new_id
from orbit.domain.permissions import ACTIONS
from orbit.domain.tokens import make_token
from orbit.kernel.caller import Token
from orbit.store.connection import connect
from orbit.store.dsn import Dsn
from orbit.store.session import Session
from orbit.store.sql import provision as sql
from orbit.store.sql.queue_admin import NewQueueRow
from orbit.store.transaction import Tx

# They belong to the installation and its living processes.
_KEPT: Final = frozenset({"alembic_version", "installation", "recovery_clock", "dispatchers"})
_TRUNCATE_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """An application with one namespace, one wide queue and one credential."""

    application_id: bytes
    namespace_id: bytes
    queue_id: bytes
    token: Token
    token_text: str

    @property
    def queue(self) -> str:
        """The queue's id as clients write it."""
        return id_text(self.queue_id)


def wipe(dsn: Dsn) -> None:
    """Empty every table of work while the daemons run.

    The quotas go first: that waits for the transactions that hold an application's lock, and refuses later ones.
    """
    connection = connect(dsn, read_timeout=_TRUNCATE_SECONDS, autocommit=True)
    try:
        connection.query(
            "SELECT table_name FROM information_schema.tables"
            " WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'"
        )
        names = {row[0] for row in connection.result_rows} - _KEPT
        for name in sorted(names, key=lambda name: (name != "application_quotas", name)):
            connection.query(f"SELECT EXISTS (SELECT 1 FROM {name})")
            if connection.result_rows[0][0]:
                connection.query(f"TRUNCATE TABLE {name}")
    finally:
        connection.close()


def make_tenant(session: Session) -> Tenant:
    """Make an application whose queue lets everything through: 100,000 attempts, a million Starts a second."""
    application_id, namespace_id, queue_id = new_id(), new_id(), new_id()
    credential_id, text, digest = make_token()

    def work(tx: Tx) -> None:
        name = f"bench-{secrets.token_hex(8)}"
        sql.enter_application(tx, application_id, name, max_unfinished=100_000_000, max_active=1_000_000)
        sql.insert_namespace(tx, sql.NamespaceRow(namespace_id, application_id, "main", "bench", "ACTIVE"))
        sql.insert_queue(
            tx,
            NewQueueRow(
                queue_id=queue_id,
                application_id=application_id,
                namespace_id=namespace_id,
                name="work",
                paused=False,
                max_concurrency=100_000,
                rate_per_second=1_000_000,
                max_unfinished_tasks=1_000_000,
                revision=1,
                created_at=tx.now,
                updated_at=tx.now,
            ),
        )
        sql.insert_credential(
            tx,
            sql.NewCredential(
                credential_id=credential_id,
                application_id=application_id,
                namespace_id=namespace_id,
                token_digest=digest,
                actions=" ".join(sorted(ACTIONS)),
                all_queues=1,
                state="ACTIVE",
                expires_at=None,
                revision=1,
                created_at=tx.now,
            ),
            (),
        )

    session.run(work)
    return Tenant(
        application_id=application_id,
        namespace_id=namespace_id,
        queue_id=queue_id,
        token=Token(credential_id=credential_id, digest=digest),
        token_text=text,
    )


def unfinished(reader: Session, queue_id: bytes) -> int:
    """Return how many of a queue's tasks have not ended, in one row read."""
    count: int = reader.run(
        lambda tx: tx.value("SELECT unfinished FROM queue_usage WHERE queue_id = %s", (queue_id,))
    )
    return count
