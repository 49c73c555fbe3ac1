"""What a credential may do and on which queues (02-pulse "Identity and permissions")."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from orbit.domain.errors import InvalidArgument

QUEUES_READ: Final = "queues:read"
QUEUES_MANAGE: Final = "queues:manage"
TASKS_SUBMIT: Final = "tasks:submit"
TASKS_READ: Final = "tasks:read"
TASKS_CANCEL: Final = "tasks:cancel"
TASKS_REVIEW: Final = "tasks:review"
TASKS_RETRY: Final = "tasks:retry"
TASKS_AUDIT_READ: Final = "tasks:audit:read"
WORKERS_CONNECT: Final = "workers:connect"
WORKERS_CONSUME: Final = "workers:consume"
WORKERS_READ: Final = "workers:read"
SCHEDULES_READ: Final = "schedules:read"
SCHEDULES_MANAGE: Final = "schedules:manage"
EVENTS_SUBSCRIBE: Final = "events:subscribe"
EVENTS_CONSUME: Final = "events:consume"
WORKFLOWS_PUBLISH: Final = "workflows:publish"
WORKFLOWS_EXECUTE: Final = "workflows:execute"
WORKFLOWS_READ: Final = "workflows:read"
WORKFLOWS_CONTROL: Final = "workflows:control"
WORKFLOWS_SIGNAL: Final = "workflows:signal"
WORKFLOWS_RECOVER: Final = "workflows:recover"
WORKFLOWS_AUDIT_READ: Final = "workflows:audit:read"

ACTIONS: Final = frozenset(
    {
        QUEUES_READ,
        QUEUES_MANAGE,
        TASKS_SUBMIT,
        TASKS_READ,
        TASKS_CANCEL,
        TASKS_REVIEW,
        TASKS_RETRY,
        TASKS_AUDIT_READ,
        WORKERS_CONNECT,
        WORKERS_CONSUME,
        WORKERS_READ,
        SCHEDULES_READ,
        SCHEDULES_MANAGE,
        EVENTS_SUBSCRIBE,
        EVENTS_CONSUME,
        WORKFLOWS_PUBLISH,
        WORKFLOWS_EXECUTE,
        WORKFLOWS_READ,
        WORKFLOWS_CONTROL,
        WORKFLOWS_SIGNAL,
        WORKFLOWS_RECOVER,
        WORKFLOWS_AUDIT_READ,
    }
)

# What the first credential gets; every other action is asked for by name (06-operations "Command lines").
BOOTSTRAP_ACTIONS: Final = frozenset({QUEUES_READ, QUEUES_MANAGE, TASKS_SUBMIT, TASKS_READ, TASKS_CANCEL})
WORKER_ACTIONS: Final = frozenset({WORKERS_CONNECT, WORKERS_CONSUME, WORKERS_READ})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The queues that a credential reaches: all of its namespace (`queues` is None), or those listed by id."""

    queues: frozenset[bytes] | None

    @property
    def is_all(self) -> bool:
        return self.queues is None

    def reaches(self, queue_id: bytes) -> bool:
        """Tell whether the queue lies in this scope."""
        return self.queues is None or queue_id in self.queues

    def canonical(self) -> bytes:
        """Return bytes that are equal for equal scopes only (a cursor is bound to them)."""
        return b"all" if self.queues is None else b"".join(sorted(self.queues))


ALL_QUEUES: Final = Scope(queues=None)


def parse_actions(names: Iterable[str], field: str = "actions") -> frozenset[str]:
    """Return the set of known action names; an unknown or missing one is InvalidArgument."""
    actions = frozenset(names)
    unknown = sorted(actions - ACTIONS)
    if unknown:
        raise InvalidArgument(f"unknown action {unknown[0][:64]}", field=field)
    if not actions:
        raise InvalidArgument("must name at least one action", field=field)
    return actions
