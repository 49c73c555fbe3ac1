"""Tasks put into the tables directly: few by the real submit, many as copies of one that was really submitted."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bench.jobs import HANDLER, VERSION, job
from bench.tenants import Tenant
from orbit.domain.errors import OrbitError
from orbit.domain.ids import new_id
from orbit.domain.keys import handler_digest, key_digest, lane_id
from orbit.domain.limits import GROUP_SUBMITS_MAX
from orbit.pulse.commands import SubmitTask
from orbit.pulse.submit import submit_tasks
from orbit.store.session import Session
from orbit.store.sql.lanes import recompute_heads
from orbit.store.tables import attempts, receipts, task_payloads, tasks
from orbit.store.transaction import Tx

# Rows of a table in one transaction: a second's work at most.
CHUNK: Final = 10_000

_DIGITS: Final = " UNION ALL ".join(f"SELECT {n} AS d" if n == 0 else f"SELECT {n}" for n in range(10))
_NUMBERS: Final = f"""
(SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d AS n
 FROM ({_DIGITS}) a, ({_DIGITS}) b, ({_DIGITS}) c, ({_DIGITS}) e) numbers
"""


def submit_command(
    tenant: Tenant, number: int, *, key: str | None = None, delay_ms: int | None = None
) -> SubmitTask:
    """Return a submit for the store, with an identity of its own."""
    return SubmitTask(
        token=tenant.token,
        idempotency_key=secrets.token_hex(12),
        task_id=new_id(),
        queue_id=tenant.queue_id,
        handler=HANDLER,
        handler_version=VERSION,
        payload_version="v1",
        payload=json.dumps(job(number)).encode(),
        concurrency_key=key,
        delay_ms=delay_ms,
    )


def submit(session: Session, tenant: Tenant, commands: Sequence[SubmitTask]) -> list[bytes]:
    """Submit at the store, in groups as the API does; return the ids. Raises: OrbitError, a refusal."""
    ids: list[bytes] = []
    for start in range(0, len(commands), GROUP_SUBMITS_MAX):
        group = commands[start : start + GROUP_SUBMITS_MAX]
        answers = session.run(lambda tx, group=group: submit_tasks(tx, tenant.application_id, group))  # type: ignore[misc]
        for answer in answers:
            if isinstance(answer, OrbitError):
                raise answer
            ids.append(answer.task.task_id)
    return ids


def fill(session: Session, tenant: Tenant, count: int, *, key: str | None = None) -> None:
    """Make `count` ready tasks that share a handler and, if given, a key."""
    (template,) = submit(session, tenant, [submit_command(tenant, 0, key=key)])
    lane = lane_id(tenant.queue_id, handler_digest(HANDLER, VERSION), key_digest(key))
    copy_tasks(session, tenant, template, count - 1, _earlier("t.created_at", "t.available_at"))
    session.run(lambda tx: recompute_heads(tx, [lane]))


def fill_keys(session: Session, tenant: Tenant, count: int, *, keys: int) -> None:
    """Make `count` ready tasks over `keys` keys in turn."""
    submit(session, tenant, [submit_command(tenant, n, key=f"key-{n % keys}") for n in range(count)])


def fill_delayed(session: Session, tenant: Tenant, count: int) -> None:
    """Make `count` tasks that become available tomorrow."""
    (template,) = submit(session, tenant, [submit_command(tenant, 0, delay_ms=24 * 3_600_000)])
    later = "t.available_at + INTERVAL (%(n)s) MICROSECOND"
    copy_tasks(session, tenant, template, count - 1, {"available_at": later, "due_at": later})


def copy_finished(session: Session, template: bytes, count: int) -> None:
    """Copy a finished task with its attempt `count` times; bodies and events are left out."""
    for start in range(0, count, CHUNK):
        size = min(CHUNK, count - start)

        def work(tx: Tx, start: int = start, size: int = size) -> None:
            _copy_rows(tx, tasks, template, start, size, _TASK_IDS)
            _copy_rows(tx, attempts, template, start, size, _ATTEMPT_IDS)

        session.run(work)


def copy_tasks(
    session: Session, tenant: Tenant, template: bytes, count: int, changes: Mapping[str, str]
) -> None:
    """Copy a waiting task `count` times, with receipts, payloads and counters; lanes are the caller's."""
    for start in range(0, count, CHUNK):
        size = min(CHUNK, count - start)

        def work(tx: Tx, start: int = start, size: int = size) -> None:
            _count(tx, tenant, size)
            _copy_rows(tx, tasks, template, start, size, {**_TASK_IDS, **changes})
            _copy_rows(tx, task_payloads, template, start, size, {"task_id": _TASK_IDS["task_id"]})
            _copy_rows(tx, receipts, template, start, size, _RECEIPT_IDS, key="resource_id")

        session.run(work)


def _new_id(column: str) -> str:
    """Return SQL for ids that keep the making time of the template's and differ in their numbers."""
    return f"UNHEX(CONCAT(LEFT(HEX({column}), 16), LPAD(HEX(%(n)s), 16, '0')))"


def _new_receipt(task_id: str) -> str:
    return f"UNHEX(SHA2(CONCAT(HEX({task_id}), %(n)s), 256))"


_TASK_IDS: Final = {"task_id": _new_id("t.task_id"), "receipt_id": _new_receipt("t.task_id")}
_ATTEMPT_IDS: Final = {"task_id": _new_id("t.task_id"), "attempt_id": _new_id("t.attempt_id")}
_RECEIPT_IDS: Final = {
    "receipt_id": _new_receipt("t.resource_id"),
    "resource_id": _new_id("t.resource_id"),
}


def _earlier(*columns: str) -> dict[str, str]:
    return {column.removeprefix("t."): f"{column} - INTERVAL (%(n)s) MICROSECOND" for column in columns}


def _copy_rows(
    tx: Tx,
    table: Any,
    template: bytes,
    start: int,
    size: int,
    changes: Mapping[str, str],
    *,
    key: str = "task_id",
) -> None:
    names = [column.name for column in table.columns if column.computed is None]
    number = f"({start} + numbers.n + 1)"
    values = [changes.get(name, f"t.{name}").replace("%(n)s", number) for name in names]
    tx.execute(
        f"INSERT INTO {table.name} ({', '.join(names)}) SELECT {', '.join(values)}"
        f" FROM {table.name} t CROSS JOIN {_NUMBERS}"
        f" WHERE t.{key} = X'{template.hex()}' AND numbers.n < {size}"
    )


def _count(tx: Tx, tenant: Tenant, added: int) -> None:
    """Keep the counters equal to the rows, under the application's lock."""
    tx.execute(
        "UPDATE application_quotas SET unfinished = unfinished + %s, row_version = row_version + 1"
        " WHERE application_id = %s",
        (added, tenant.application_id),
    )
    tx.execute(
        "UPDATE queue_usage SET unfinished = unfinished + %s, row_version = row_version + 1"
        " WHERE queue_id = %s",
        (added, tenant.queue_id),
    )
