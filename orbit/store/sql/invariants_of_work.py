"""Checks of attempts (I1), keys and their tokens (I2, I3, I4), and counters (I5)."""

from __future__ import annotations

from typing import Final

from orbit.store.sql.invariant_check import NO_KEY_HEX, Check, task_text

ATTEMPTS: Final = (
    Check(
        "I1 one live attempt per task",
        f"""SELECT CONCAT({task_text("a")}, ' has ', COUNT(*), ' live attempts') FROM attempts a
        WHERE a.lease_expires_at IS NOT NULL AND {{a}} GROUP BY a.task_id HAVING COUNT(*) > 1""",
    ),
    Check(
        "I1 a live attempt is its task's newest, and the task is held",
        f"""SELECT CONCAT({task_text("a")}, ' epoch ', a.epoch, ' is ', a.state, ', its task ',
            COALESCE(t.state, 'missing'))
        FROM attempts a LEFT JOIN tasks t ON t.task_id = a.task_id
        WHERE a.lease_expires_at IS NOT NULL AND {{a}}
          AND (t.task_id IS NULL OR t.state <> 'LEASED' OR t.epoch <> a.epoch)""",
    ),
    Check(
        "I1 a held task has its live attempt",
        f"""SELECT CONCAT({task_text()}, ' is ', t.state, ', its attempt ', COALESCE(a.state, 'missing'))
        FROM queues q JOIN tasks t ON t.queue_id = q.queue_id
        LEFT JOIN attempts a ON a.task_id = t.task_id AND a.epoch = t.epoch
        WHERE {{q}} AND t.state = 'LEASED' AND a.lease_expires_at IS NULL""",
    ),
    Check(
        "I1 epochs and Starts are counted",
        f"""SELECT CONCAT(x.name, ' says ', x.said, ', has ', x.found, ' (epoch/newest/ended Starts)') FROM (
            SELECT CONCAT({task_text()}) AS name, CONCAT(t.epoch, '/', t.epoch, '/', t.attempts_used) AS said, (
                SELECT CONCAT(COUNT(*), '/', COALESCE(MAX(a.epoch), 0), '/',
                    COUNT(IF(a.ended_at IS NULL, NULL, a.started_at)))
                FROM attempts a WHERE a.task_id = t.task_id) AS found
            FROM queues q JOIN tasks t ON t.queue_id = q.queue_id WHERE {{q}}
        ) x WHERE x.said <> x.found""",
    ),
    Check(
        "I1 an ended attempt says when and what its task became",
        f"""SELECT CONCAT({task_text("a")}, ' epoch ', a.epoch, ' is ', a.state) FROM attempts a
        WHERE {{a}} AND ((a.lease_expires_at IS NULL) <> (a.ended_at IS NOT NULL)
            OR (a.lease_expires_at IS NULL) <> (a.ended_task_state IS NOT NULL)
            OR (a.state = 'RUNNING' AND a.started_at IS NULL) OR (a.state = 'LEASED' AND a.started_at IS NOT NULL))""",
    ),
)

KEYS: Final = (
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
        f"""SELECT CONCAT({task_text("a")}, ' epoch ', a.epoch, ' holds no key') FROM attempts a
        LEFT JOIN concurrency_keys k ON k.namespace_id = a.namespace_id AND k.key_digest = a.key_digest
        WHERE a.lease_expires_at IS NOT NULL AND a.key_digest IS NOT NULL AND {{a}}
          AND NOT k.holder_attempt_id <=> a.attempt_id""",
    ),
    Check(
        "I4 tokens stay below the key's counter, which a release raises too",
        f"""SELECT CONCAT({task_text("a")}, ' epoch ', a.epoch, ' token ', a.concurrency_token, ', key at ',
            COALESCE(k.last_token, 'none'))
        FROM attempts a
        LEFT JOIN concurrency_keys k ON k.namespace_id = a.namespace_id AND k.key_digest = a.key_digest
        WHERE {{a}} AND a.key_digest IS NOT NULL
          AND (k.last_token IS NULL OR a.concurrency_token > k.last_token
            OR (a.lease_expires_at IS NULL AND a.concurrency_token = k.last_token))""",
    ),
    Check(
        "I4 a task's token rises with its epoch",
        f"""SELECT CONCAT({task_text("a")}, ' epoch ', b.epoch, ' token ', b.concurrency_token, ' after ',
            a.concurrency_token)
        FROM attempts a JOIN attempts b ON b.task_id = a.task_id AND b.epoch = a.epoch + 1
        WHERE {{a}} AND b.concurrency_token <= a.concurrency_token""",
    ),
    Check(
        "I4 an attempt has its task's key",
        f"""SELECT CONCAT({task_text("a")}, ' epoch ', a.epoch) FROM attempts a JOIN tasks t ON t.task_id = a.task_id
        WHERE {{a}} AND COALESCE(a.key_digest, {NO_KEY_HEX}) <> t.key_digest""",
    ),
    Check(
        "I4 a key row's digest is its bytes'",
        """SELECT CONCAT('key ', LOWER(HEX(k.key_digest))) FROM namespaces n
        JOIN concurrency_keys k ON k.namespace_id = n.namespace_id
        WHERE {n} AND k.key_digest <> UNHEX(SHA2(k.concurrency_key, 256))""",
    ),
)

COUNTERS: Final = (
    Check(
        "I5 a queue's counters equal their recount",
        """SELECT CONCAT('queue ', LOWER(HEX(q.queue_id)), ' counts ', u.unfinished, '/', u.active, ', has ',
            COALESCE(SUM(t.state IN ('WAITING', 'LEASED', 'NEEDS_REVIEW')), 0), '/', COALESCE(SUM(t.state = 'LEASED'), 0))
        FROM queues q JOIN queue_usage u ON u.queue_id = q.queue_id LEFT JOIN tasks t ON t.queue_id = q.queue_id
        WHERE {q} GROUP BY q.queue_id, u.unfinished, u.active
        HAVING u.unfinished <> COALESCE(SUM(t.state IN ('WAITING', 'LEASED', 'NEEDS_REVIEW')), 0)
            OR u.active <> COALESCE(SUM(t.state = 'LEASED'), 0)""",
    ),
    Check(
        "I5 a queue's live attempts equal its counter",
        """SELECT CONCAT('queue ', LOWER(HEX(q.queue_id)), ' counts ', u.active, '/', u.leased_unstarted,
            ', has ', COUNT(a.attempt_id), '/', COUNT(IF(a.state = 'LEASED', 1, NULL)))
        FROM queues q JOIN queue_usage u ON u.queue_id = q.queue_id
        LEFT JOIN attempts a ON a.queue_id = q.queue_id AND a.lease_expires_at IS NOT NULL
        WHERE {q} GROUP BY q.queue_id, u.active, u.leased_unstarted
        HAVING u.active <> COUNT(a.attempt_id) OR u.leased_unstarted <> COUNT(IF(a.state = 'LEASED', 1, NULL))""",
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
