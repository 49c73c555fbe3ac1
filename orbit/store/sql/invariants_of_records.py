"""Checks of receipts (I6), ends and their events (I7, I9), lanes, relations without foreign keys, and hygiene (I13)."""

from __future__ import annotations

from typing import Final

from orbit.domain.states import TASK_MOVES
from orbit.store.sql.invariant_check import NO_KEY_HEX, Check, task_text

OLD_TRANSACTION_SECONDS: Final = 10
_MOVES: Final = ", ".join(
    f"('{state}', '{to}')" for state, moves in TASK_MOVES.items() for to in sorted(moves)
)

RECORDS: Final = (
    Check(
        "I6 a task has the receipt of its acceptance",
        f"""SELECT CONCAT({task_text()}, ' has ', IF(r.receipt_id IS NULL, 'no receipt', 'another task''s receipt'))
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
        "I7 a task moves only as the state table allows, and never out of a terminal state",
        f"""SELECT CONCAT('task ', LOWER(HEX(e.resource_id)), ' went from ', e.from_state, ' to ', e.to_state)
        FROM namespaces n JOIN state_events e ON e.namespace_id = n.namespace_id
        WHERE {{n}} AND e.resource_kind = 'task' AND (e.from_state, e.to_state) NOT IN ({_MOVES})""",
    ),
    Check(
        "I7 a finished task is as its last event says",
        f"""SELECT CONCAT({task_text()}, ' is ', t.state, ' at revision ', t.revision, ', event ',
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
        f"""SELECT CONCAT({task_text()}, ' is ', t.state, ' without an event')
        FROM queues q JOIN tasks t ON t.queue_id = q.queue_id
        WHERE {{q}} AND t.state IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'NEEDS_REVIEW') AND NOT EXISTS (
            SELECT 1 FROM result_events r WHERE r.task_id = t.task_id AND r.task_state = t.state)""",
    ),
)

LANES: Final = (
    Check(
        "lanes: the head is the earliest ready task",
        """SELECT CONCAT('lane ', LOWER(HEX(l.lane_id)), ' heads ', COALESCE(l.head_dispatch_at, 'nothing'), ', has ',
            COALESCE((SELECT MIN(t.dispatch_at) FROM tasks t WHERE t.lane_id = l.lane_id AND t.ready = 1), 'nothing'))
        FROM lanes l WHERE {l} AND NOT l.head_dispatch_at <=> (
            SELECT MIN(t.dispatch_at) FROM tasks t WHERE t.lane_id = l.lane_id AND t.ready = 1)""",
    ),
    Check(
        "lanes: a ready task has its lane",
        f"""SELECT CONCAT({task_text()}, ' has ', IF(l.lane_id IS NULL, 'no lane', 'a foreign lane'))
        FROM queues q JOIN tasks t ON t.queue_id = q.queue_id LEFT JOIN lanes l ON l.lane_id = t.lane_id
        WHERE {{q}} AND t.ready = 1 AND (l.lane_id IS NULL OR l.queue_id <> t.queue_id
            OR l.namespace_id <> t.namespace_id OR l.key_digest <> t.key_digest)""",
    ),
    Check(
        "lanes: occupied means that the key is held",
        f"""SELECT CONCAT('lane ', LOWER(HEX(l.lane_id)), ' says ', l.occupied) FROM lanes l
        LEFT JOIN concurrency_keys k ON k.namespace_id = l.namespace_id AND k.key_digest = l.key_digest
            AND l.key_digest <> {NO_KEY_HEX}
        WHERE {{l}} AND l.occupied <> (k.holder_attempt_id IS NOT NULL)""",
    ),
    Check(
        "lanes: claimable means ready and free",
        """SELECT CONCAT('lane ', LOWER(HEX(l.lane_id))) FROM lanes l
        WHERE {l} AND l.claimable <> (l.head_dispatch_at IS NOT NULL AND l.occupied = 0)""",
    ),
    Check(
        "lanes: a waiting task is ready or has a due time, no other task has either",
        f"""SELECT CONCAT({task_text()}, ' is ', t.state, ', ready ', COALESCE(t.ready, 'no'), ', due ',
            COALESCE(t.due_at, 'never'))
        FROM queues q JOIN tasks t ON t.queue_id = q.queue_id
        WHERE {{q}} AND ((t.state = 'WAITING') <> (t.ready IS NOT NULL OR t.due_at IS NOT NULL)
            OR (t.ready IS NOT NULL AND t.due_at IS NOT NULL) OR (t.due_at <> t.available_at)
            OR (t.unstarted_deadline_at IS NOT NULL AND (t.state NOT IN ('WAITING', 'LEASED') OR EXISTS (
                SELECT 1 FROM attempts a WHERE a.task_id = t.task_id AND a.epoch = t.epoch AND a.state = 'RUNNING'))))""",
    ),
)

RELATIONS: Final = (
    Check(
        "relations: a task belongs to its queue's namespace and has a payload",
        f"""SELECT CONCAT({task_text()}, IF(p.task_id IS NULL, ' has no payload', ' is elsewhere than its queue'))
        FROM queues q JOIN tasks t ON t.queue_id = q.queue_id LEFT JOIN task_payloads p ON p.task_id = t.task_id
        WHERE {{q}} AND (p.task_id IS NULL OR t.namespace_id <> q.namespace_id
            OR t.application_id <> q.application_id)""",
    ),
    Check(
        "relations: a task has a queue",
        f"""SELECT CONCAT({task_text()}) FROM tasks t LEFT JOIN queues q ON q.queue_id = t.queue_id
        WHERE {{t}} AND q.queue_id IS NULL""",
    ),
    Check(
        "relations: an attempt belongs where its task does",
        f"""SELECT CONCAT({task_text("a")}, ' epoch ', a.epoch) FROM attempts a
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

HYGIENE: Final = (
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
