"""SQLAlchemy Core tables, one module per area. Migrations hold the same facts as literal DDL; a drift test compares."""

from __future__ import annotations

from orbit.store.tables.access import applications, credential_queues, credentials, installation, namespaces
from orbit.store.tables.columns import metadata
from orbit.store.tables.events import audits, namespace_streams, receipts, result_events, state_events
from orbit.store.tables.queues import application_quotas, concurrency_keys, lanes, queue_usage, queues
from orbit.store.tables.sessions import dispatchers, recovery_clock, worker_sessions
from orbit.store.tables.tasks import attempt_outputs, attempts, late_evidence, task_payloads, tasks

__all__ = [
    "application_quotas",
    "applications",
    "attempt_outputs",
    "attempts",
    "audits",
    "concurrency_keys",
    "credential_queues",
    "credentials",
    "dispatchers",
    "installation",
    "lanes",
    "late_evidence",
    "metadata",
    "namespace_streams",
    "namespaces",
    "queue_usage",
    "queues",
    "receipts",
    "recovery_clock",
    "result_events",
    "state_events",
    "task_payloads",
    "tasks",
    "worker_sessions",
]
