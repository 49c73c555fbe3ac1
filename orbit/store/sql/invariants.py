"""Checks of what must always hold (docs/testing.md), each one statement, so that it sees one instant of a busy database.

A check selects a line of text for every violation. `{q}` in its text stands for the scope: one application, by
alias, or everything. Nothing is locked and nothing is written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from orbit.domain.keys import NO_KEY
from orbit.store.failures import DatabaseError, error_number
from orbit.store.transaction import Tx

DETAILS_MAX: Final = 20
OLD_TRANSACTION_SECONDS: Final = 10
# The account may not see other sessions; a check that needs it is passed over.
_NO_PRIVILEGE: Final = frozenset({1044, 1142, 1227})
_SCOPE = re.compile(r"\{(\w+)\}")
_NO_KEY_HEX: Final = f"X'{NO_KEY.hex()}'"


class Check(NamedTuple):
    name: str
    sql: str
    needs_process_privilege: bool = False


def _task(alias: str = "t") -> str:
    return f"'task ', LOWER(HEX({alias}.task_id))"


_ATTEMPTS = (
    Check(
        "I1 one live attempt per task",
        f"""SELECT CONCAT({_task("a")}, ' has ', COUNT(*), ' live attempts') FROM attempts a
        WHERE a.lease_expires_at IS NOT NULL AND {{a}} GROUP BY a.task_id HAVING COUNT(*) > 1""",
    ),
    Check(
        "I1 a live attempt is its task's newest and shares its state",
        f"""SELECT CONCAT({_task("a")}, ' epoch ', a.epoch, ' is ', a.state, ', task ', COALESCE(t.state, 'missing'))
        FROM attempts a LEFT JOIN tasks t ON t.task_id = a.task_id
        WHERE a.lease_expires_at IS NOT NULL AND {{a}}
          AND (t.task_id IS NULL OR t.state <> a.state OR t.epoch <> a.epoch)""",
    ),
    Check(
        "I1 a leased or running task has its live attempt",
        f"""SELECT CONCAT({_task()}, ' is ', t.state, ', its attempt ', COALESCE(a.state, 'missing'))
        FROM queues q JOIN tasks t ON t.queue_id = q.queue_id
        LEFT JOIN attempts a ON a.task_id = t.task_id AND a.epoch = t.epoch
        WHERE {{q}} AND t.state IN ('LEASED', 'RUNNING') AND (a.state IS NULL OR a.state <> t.state)""",
    ),
    Check(
        "I1 epochs and Starts are counted",
        f"""SELECT CONCAT({_task()}, ' epoch ', t.epoch, ' used ', t.attempts_used, ', has ', COUNT(a.epoch),
            ' attempts, newest ', COALESCE(MAX(a.epoch), 0), ', ', COUNT(a.started_at), ' Starts')
        FROM queues q JOIN tasks t ON t.queue_id = q.queue_id LEFT JOIN attempts a ON a.task_id = t.task_id
        WHERE {{q}} GROUP BY t.task_id, t.epoch, t.attempts_used
        HAVING t.epoch <> COUNT(a.epoch) OR t.epoch <> COALESCE(MAX(a.epoch), 0)
            OR t.attempts_used <> COUNT(a.started_at)""",
    ),
    Check(
        "I1 an ended attempt says when and what its task became",
        f"""SELECT CONCAT({_task("a")}, ' epoch ', a.epoch, ' is ', a.state) FROM attempts a
        WHERE {{a}} AND ((a.lease_expires_at IS NULL) <> (a.ended_at IS NOT NULL)
            OR (a.lease_expires_at IS NULL) <> (a.ended_task_state IS NOT NULL)
            OR (a.state = 'RUNNING' AND a.started_at IS NULL) OR (a.state = 'LEASED' AND a.started_at IS NOT NULL))""",
    ),
)

_KEYS = (
    Check(
        "I2 one live attempt per key",
        """SELECT CONCAT('key ', LOWER(HEX(a.key_digest)), ' has ', COUNT(*), ' live attempts') FROM attempts a
        WHERE a.lease_expires_at IS NOT NULL AND a.key_digest IS NOT NULL AND {a}
        GROUP BY a.namespace_id, a.key_digest HAVING COUNT(*) > 1""",
    ),
    Check(
        "I3 a key's holder is a live attempt of that key with its newest token",
        """SELECT CONCAT('key ', LOWER(HEX(k.key_digest)), ' is held by ', LOWER(HEX(k.holder_attempt_id)), ', ',
            COALESCE(a.state, 'missing'))
        FROM namespaces n JOIN concurrency_keys k ON k.namespace_id = n.namespace_id
        LEFT JOIN attempts a ON a.attempt_id = k.holder_attempt_id
        WHERE {n} AND k.holder_attempt_id IS NOT NULL
          AND (a.lease_expires_at IS NULL OR a.namespace_id <> k.namespace_id
            OR NOT a.key_digest <=> k.key_digest OR NOT a.concurrency_token <=> k.last_token)""",
    ),
    Check(
        "I3 a live keyed attempt is its key's holder",
        f"""SELECT CONCAT({_task("a")}, ' epoch ', a.epoch, ' holds no key') FROM attempts a
        LEFT JOIN concurrency_keys k ON k.namespace_id = a.namespace_id AND k.key_digest = a.key_digest
        WHERE a.lease_expires_at IS NOT NULL AND a.key_digest IS NOT NULL AND {{a}}
          AND NOT k.holder_attempt_id <=> a.attempt_id""",
    ),
    Check(
        "I4 tokens stay below the key's counter, which a release raises too",
        f"""SELECT CONCAT({_task("a")}, ' epoch ', a.epoch, ' token ', a.concurrency_token, ', key at ',
            COALESCE(k.last_token, 'none'))
        FROM attempts a
        LEFT JOIN concurrency_keys k ON k.namespace_id = a.namespace_id AND k.key_digest = a.key_digest
        WHERE {{a}} AND a.key_digest IS NOT NULL
          AND (k.last_token IS NULL OR a.concurrency_token > k.last_token
            OR (a.lease_expires_at IS NULL AND a.concurrency_token = k.last_token))""",
    ),
    Check(
        "I4 a task's token rises with its epoch",
        f"""SELECT CONCAT({_task("a")}, ' epoch ', b.epoch, ' token ', b.concurrency_token, ' after ',
            a.concurrency_token)
        FROM attempts a JOIN attempts b ON b.task_id = a.task_id AND b.epoch = a.epoch + 1
        WHERE {{a}} AND b.concurrency_token <= a.concurrency_token""",
    ),
    Check(
        "I4 an attempt has its task's key",
        f"""SELECT CONCAT({_task("a")}, ' epoch ', a.epoch) FROM attempts a JOIN tasks t ON t.task_id = a.task_id
        WHERE {{a}} AND COALESCE(a.key_digest, {_NO_KEY_HEX}) <> t.key_digest""",
    ),
    Check(
        "I4 a key row's digest is its bytes'",
        """SELECT CONCAT('key ', LOWER(HEX(k.key_digest))) FROM namespaces n
        JOIN concurrency_keys k ON k.namespace_id = n.namespace_id
        WHERE {n} AND k.key_digest <> UNHEX(SHA2(k.concurrency_key, 256))""",
    ),
)

_COUNTERS = (
    Check(
        "I5 a queue's counters equal their recount",
        """SELECT CONCAT('queue ', LOWER(HEX(q.queue_id)), ' counts ', u.unfinished, '/', u.active, '/',
            u.leased_unstarted, ', has ', COALESCE(SUM(t.state IN ('WAITING', 'LEASED', 'RUNNING', 'NEEDS_REVIEW')), 0),
            '/', COALESCE(SUM(t.state IN ('LEASED', 'RUNNING')), 0), '/', COALESCE(SUM(t.state = 'LEASED'), 0))
        FROM queues q JOIN queue_usage u ON u.queue_id = q.queue_id LEFT JOIN tasks t ON t.queue_id = q.queue_id
        WHERE {q} GROUP BY q.queue_id, u.unfinished, u.active, u.leased_unstarted
        HAVING u.unfinished <> COALESCE(SUM(t.state IN ('WAITING', 'LEASED', 'RUNNING', 'NEEDS_REVIEW')), 0)
            OR u.active <> COALESCE(SUM(t.state IN ('LEASED', 'RUNNING')), 0)
            OR u.leased_unstarted <> COALESCE(SUM(t.state = 'LEASED'), 0)""",
    ),
    Check(
        "I5 a queue's live attempts equal its counter",
        """SELECT CONCAT('queue ', LOWER(HEX(q.queue_id)), ' counts ', u.active, ', has ', COUNT(a.attempt_id))
        FROM queues q JOIN queue_usage u ON u.queue_id = q.queue_id
        LEFT JOIN attempts a ON a.queue_id = q.queue_id AND a.lease_expires_at IS NOT NULL
        WHERE {q} GROUP BY q.queue_id, u.active HAVING u.active <> COUNT(a.attempt_id)""",
    ),
    Check(
        "I5 an application's counters equal its queues' sums",
        """SELECT CONCAT('application ', LOWER(HEX(p.application_id)), ' counts ', p.unfinished, '/', p.active,
            ', its queues ', COALESCE(SUM(u.unfinished), 0), '/', COALESCE(SUM(u.active), 0))
        FROM application_quotas p LEFT JOIN queues q ON q.application_id = p.application_id
        LEFT JOIN queue_usage u ON u.queue_id = q.queue_id
        WHERE {p} GROUP BY p.application_id, p.unfinished, p.active
        HAVING p.unfinished <> COALESCE(SUM(u.unfinished), 0) OR p.active <> COALESCE(SUM(u.active), 0)""",
    ),
)

_RECORDS = (
    Check(
        "I6 a task has the receipt of its acceptance",
        f"""SELECT CONCAT({_task()}, ' has ', IF(r.receipt_id IS NULL, 'no receipt', 'another task''s receipt'))
        FROM queues q JOIN tasks t ON t.queue_id = q.queue_id LEFT JOIN receipts r ON r.receipt_id = t.receipt_id
        WHERE {{q}} AND (r.receipt_id IS NULL OR r.resource_id <> t.task_id
            OR r.application_id <> t.application_id)""",
    ),
    Check(
        "I6 an acceptance's receipt names its task",
        """SELECT CONCAT('receipt ', LOWER(HEX(r.receipt_id))) FROM receipts r
        LEFT JOIN tasks t ON t.task_id = r.resource_id
        WHERE {r} AND r.body IS NULL AND NOT t.receipt_id <=> r.receipt_id""",
    ),
    Check(
        "I7 nothing leaves a terminal state",
        """SELECT CONCAT('task ', LOWER(HEX(e.resource_id)), ' went from ', e.from_state, ' to ', e.to_state)
        FROM namespaces n JOIN state_events e ON e.namespace_id = n.namespace_id
        WHERE {n} AND e.resource_kind = 'task' AND e.from_state IN ('SUCCEEDED', 'FAILED', 'CANCELLED')""",
    ),
    Check(
        "I7 a finished task is as its last event says",
        f"""SELECT CONCAT({_task()}, ' is ', t.state, ' at revision ', t.revision, ', event ',
            COALESCE(e.to_state, 'missing'))
        FROM queues q JOIN tasks t ON t.queue_id = q.queue_id
        LEFT JOIN state_events e ON e.resource_id = t.task_id AND e.revision = t.revision
        WHERE {{q}} AND t.finished_at IS NOT NULL
          AND (e.to_state IS NULL OR e.to_state <> t.state OR e.occurred_at <> t.finished_at)""",
    ),
    Check(
        "I9 a namespace's results are numbered without gaps up to its stream's mark",
        """SELECT CONCAT('namespace ', LOWER(HEX(n.namespace_id)), ' is at ', s.last_sequence, ', has ', COUNT(*),
            ' events from ', MIN(e.sequence), ' to ', MAX(e.sequence))
        FROM namespaces n JOIN namespace_streams s ON s.namespace_id = n.namespace_id
        JOIN result_events e ON e.namespace_id = n.namespace_id
        WHERE {n} GROUP BY n.namespace_id, s.last_sequence
        HAVING MAX(e.sequence) <> s.last_sequence OR MAX(e.sequence) - MIN(e.sequence) + 1 <> COUNT(*)""",
    ),
    Check(
        "I9 each end and each review has exactly one result event",
        """SELECT CONCAT('task ', LOWER(HEX(x.task_id)), ' ', x.state, ': ', SUM(x.is_state), ' state events, ',
            SUM(x.is_result), ' result events')
        FROM (
            SELECT e.resource_id AS task_id, e.to_state AS state, 1 AS is_state, 0 AS is_result
            FROM namespaces n JOIN state_events e ON e.namespace_id = n.namespace_id
            WHERE {n} AND e.resource_kind = 'task'
              AND e.to_state IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'NEEDS_REVIEW')
            UNION ALL
            SELECT r.task_id, r.task_state, 0, 1
            FROM namespaces n JOIN result_events r ON r.namespace_id = n.namespace_id WHERE {n}
        ) x GROUP BY x.task_id, x.state
        HAVING SUM(x.is_state) <> SUM(x.is_result) OR (x.state <> 'NEEDS_REVIEW' AND SUM(x.is_result) > 1)""",
    ),
    Check(
        "I9 an ended or reviewed task has its event",
        f"""SELECT CONCAT({_task()}, ' is ', t.state, ' without an event')
        FROM queues q JOIN tasks t ON t.queue_id = q.queue_id
        WHERE {{q}} AND t.state IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'NEEDS_REVIEW') AND NOT EXISTS (
            SELECT 1 FROM result_events r WHERE r.task_id = t.task_id AND r.task_state = t.state)""",
    ),
)

_LANES = (
    Check(
        "lanes: the head is the earliest ready task",
        """SELECT CONCAT('lane ', LOWER(HEX(l.lane_id)), ' heads ', COALESCE(l.head_dispatch_at, 'nothing'), ', has ',
            COALESCE((SELECT MIN(t.dispatch_at) FROM tasks t WHERE t.lane_id = l.lane_id AND t.ready = 1), 'nothing'))
        FROM lanes l WHERE {l} AND NOT l.head_dispatch_at <=> (
            SELECT MIN(t.dispatch_at) FROM tasks t WHERE t.lane_id = l.lane_id AND t.ready = 1)""",
    ),
    Check(
        "lanes: a ready task has its lane",
        f"""SELECT CONCAT({_task()}, ' has ', IF(l.lane_id IS NULL, 'no lane', 'a foreign lane'))
        FROM queues q JOIN tasks t ON t.queue_id = q.queue_id LEFT JOIN lanes l ON l.lane_id = t.lane_id
        WHERE {{q}} AND t.ready = 1 AND (l.lane_id IS NULL OR l.queue_id <> t.queue_id
            OR l.namespace_id <> t.namespace_id OR l.key_digest <> t.key_digest)""",
    ),
    Check(
        "lanes: occupied means that the key is held",
        f"""SELECT CONCAT('lane ', LOWER(HEX(l.lane_id)), ' says ', l.occupied) FROM lanes l
        LEFT JOIN concurrency_keys k ON k.namespace_id = l.namespace_id AND k.key_digest = l.key_digest
            AND l.key_digest <> {_NO_KEY_HEX}
        WHERE {{l}} AND l.occupied <> (k.holder_attempt_id IS NOT NULL)""",
    ),
    Check(
        "lanes: claimable means ready and free",
        """SELECT CONCAT('lane ', LOWER(HEX(l.lane_id))) FROM lanes l
        WHERE {l} AND l.claimable <> (l.head_dispatch_at IS NOT NULL AND l.occupied = 0)""",
    ),
    Check(
        "lanes: a waiting task is ready or has a due time, no other task has either",
        f"""SELECT CONCAT({_task()}, ' is ', t.state, ', ready ', COALESCE(t.ready, 'no'), ', due ',
            COALESCE(t.due_at, 'never'))
        FROM queues q JOIN tasks t ON t.queue_id = q.queue_id
        WHERE {{q}} AND ((t.state = 'WAITING') <> (t.ready IS NOT NULL OR t.due_at IS NOT NULL)
            OR (t.ready IS NOT NULL AND t.due_at IS NOT NULL) OR (t.due_at <> t.available_at)
            OR (t.unstarted_deadline_at IS NOT NULL AND t.state NOT IN ('WAITING', 'LEASED')))""",
    ),
)

_RELATIONS = (
    Check(
        "relations: a task belongs to its queue's namespace and has a payload",
        f"""SELECT CONCAT({_task()}, IF(p.task_id IS NULL, ' has no payload', ' is elsewhere than its queue'))
        FROM queues q JOIN tasks t ON t.queue_id = q.queue_id LEFT JOIN task_payloads p ON p.task_id = t.task_id
        WHERE {{q}} AND (p.task_id IS NULL OR t.namespace_id <> q.namespace_id
            OR t.application_id <> q.application_id)""",
    ),
    Check(
        "relations: a task has a queue",
        f"""SELECT CONCAT({_task()}) FROM tasks t LEFT JOIN queues q ON q.queue_id = t.queue_id
        WHERE {{t}} AND q.queue_id IS NULL""",
    ),
    Check(
        "relations: an attempt belongs where its task does",
        f"""SELECT CONCAT({_task("a")}, ' epoch ', a.epoch) FROM attempts a
        LEFT JOIN tasks t ON t.task_id = a.task_id
        WHERE {{a}} AND (t.task_id IS NULL OR t.queue_id <> a.queue_id OR t.namespace_id <> a.namespace_id
            OR t.application_id <> a.application_id)""",
    ),
    Check(
        "relations: queues, namespaces and applications have their counters",
        """SELECT CONCAT('queue ', LOWER(HEX(q.queue_id))) FROM queues q
        LEFT JOIN queue_usage u ON u.queue_id = q.queue_id
        LEFT JOIN application_quotas p ON p.application_id = q.application_id
        LEFT JOIN namespaces n ON n.namespace_id = q.namespace_id AND n.application_id = q.application_id
        LEFT JOIN namespace_streams s ON s.namespace_id = q.namespace_id
        WHERE {q} AND (u.queue_id IS NULL OR p.application_id IS NULL OR n.namespace_id IS NULL
            OR s.namespace_id IS NULL)""",
    ),
)

_HYGIENE = (
    Check(
        "I13 no foreign keys",
        """SELECT CONCAT(c.table_name, '.', c.constraint_name) FROM information_schema.referential_constraints c
        WHERE c.constraint_schema = DATABASE()""",
    ),
    Check(
        "I13 no transaction stays open",
        f"""SELECT CONCAT('connection ', x.trx_mysql_thread_id, ' since ', x.trx_started)
        FROM information_schema.innodb_trx x
        WHERE x.trx_mysql_thread_id NOT IN (0, CONNECTION_ID())
          AND x.trx_started < CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM')
              - INTERVAL {OLD_TRANSACTION_SECONDS} SECOND""",
        needs_process_privilege=True,
    ),
)

CHECKS: Final = (*_ATTEMPTS, *_KEYS, *_COUNTERS, *_RECORDS, *_LANES, *_RELATIONS, *_HYGIENE)


def select_violations(tx: Tx, check: Check, application_id: bytes | None = None) -> Sequence[str]:
    """Return a line for each violation of one check, at most 20, in all applications or in one."""
    params = [] if application_id is None else [application_id] * len(_SCOPE.findall(check.sql))
    scope = "TRUE" if application_id is None else r"\1.application_id = %s"
    try:
        rows = tx.rows(f"{_SCOPE.sub(scope, check.sql)} LIMIT {DETAILS_MAX}", params)
    except DatabaseError as error:
        if check.needs_process_privilege and error_number(error) in _NO_PRIVILEGE:
            return ()
        raise
    return [row[0] if isinstance(row[0], str) else bytes(row[0] or b"").decode() for row in rows]
