"""The invariant checker sees what it is there to see: each corruption is found, under the right name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orbit.domain.errors import OrbitError
from orbit.domain.ids import new_id
from orbit.domain.states import Outcome
from orbit.pulse.invariants import check_invariants, invariant_names
from orbit.store.transaction import Tx
from tests.support.pulse import Pulse, Worker


class _Undo(OrbitError):
    """Rolls a corruption back."""


@pytest.fixture
def scene(pulse: Pulse, worker: Worker) -> dict[str, Any]:
    """A keyed task running and one behind it, one done, one failed, one in review, one delayed."""
    pulse.submit(handler="done")
    done = worker.run_one(handlers=(("done", "1"),))
    worker.finish(done)
    reviewed = pulse.submit(handler="doubt")
    worker.finish(worker.run_one(handlers=(("doubt", "1"),)), Outcome.UNKNOWN)
    running = pulse.submit(concurrency_key="k")
    held = worker.run_one()
    ready = pulse.submit(concurrency_key="k")
    delayed = pulse.submit(delay_ms=60_000)
    return {
        "application": pulse.tenant.application_id,
        "namespace": pulse.tenant.namespace_id,
        "queue": pulse.tenant.queue_id,
        "done": done.task_id,
        "reviewed": reviewed,
        "running": running,
        "attempt": held.attempt_id,
        "ready": ready,
        "delayed": delayed,
        "fresh": new_id(),
    }


CORRUPTIONS: list[tuple[str, str]] = [
    (
        "I1 one live attempt per task",
        (
            "UPDATE attempts a JOIN attempts b ON b.attempt_id = :attempt SET a.lease_expires_at = b.lease_expires_at,"
            " a.state = 'LEASED', a.task_id = b.task_id, a.epoch = 2 WHERE a.task_id = :done"
        ),
    ),
    (
        "I1 a live attempt is its task's newest, and the task is held",
        "UPDATE tasks SET epoch = 2 WHERE task_id = :running",
    ),
    (
        "I1 a held task has its live attempt",
        (
            "UPDATE attempts SET state = 'UNKNOWN', lease_expires_at = NULL, ended_at = leased_at"
            " WHERE attempt_id = :attempt"
        ),
    ),
    ("I1 epochs and Starts are counted", "UPDATE tasks SET attempts_used = 2 WHERE task_id = :running"),
    (
        "I1 an ended attempt says when and what its task became",
        "UPDATE attempts SET ended_task_state = NULL WHERE task_id = :done",
    ),
    (
        "I2 one live attempt per key",
        (
            "UPDATE attempts a JOIN attempts b ON b.attempt_id = :attempt SET a.lease_expires_at = b.lease_expires_at,"
            " a.state = 'LEASED', a.key_digest = b.key_digest, a.concurrency_token = 9 WHERE a.task_id = :done"
        ),
    ),
    (
        "I3 a key's holder is a live attempt of that key with its newest token",
        "UPDATE concurrency_keys SET holder_attempt_id = :fresh WHERE namespace_id = :namespace",
    ),
    (
        "I3 a live keyed attempt is its key's holder",
        "UPDATE concurrency_keys SET holder_attempt_id = NULL WHERE namespace_id = :namespace",
    ),
    (
        "I4 tokens stay below the key's counter, which a release raises too",
        "UPDATE concurrency_keys SET last_token = 0 WHERE namespace_id = :namespace",
    ),
    (
        "I4 a task's token rises with its epoch",
        (
            "INSERT INTO attempts (task_id, epoch, attempt_id, application_id, namespace_id, queue_id, key_digest,"
            " concurrency_token, state, worker_ref, session_id, leased_at, ended_at, ended_task_state)"
            " SELECT task_id, 2, :fresh, application_id, namespace_id, queue_id, key_digest, 0, 'EXPIRED', worker_ref,"
            " session_id, leased_at, leased_at, 'WAITING' FROM attempts WHERE attempt_id = :attempt"
        ),
    ),
    (
        "I4 an attempt has its task's key",
        "UPDATE tasks SET key_digest = REPEAT('k', 32) WHERE task_id = :running",
    ),
    (
        "I4 a key row's digest is its bytes'",
        "UPDATE concurrency_keys SET concurrency_key = 'K' WHERE namespace_id = :namespace",
    ),
    (
        "I5 a queue's counters equal their recount",
        "UPDATE queue_usage SET unfinished = unfinished + 1 WHERE queue_id = :queue",
    ),
    (
        "I5 a queue's live attempts equal its counter",
        "UPDATE queue_usage SET leased_unstarted = 1 WHERE queue_id = :queue",
    ),
    (
        "I5 a queue's live attempts equal its counter",
        "UPDATE queue_usage SET active = 0 WHERE queue_id = :queue",
    ),
    (
        "I5 an application's counters equal its queues' sums",
        "UPDATE application_quotas SET active = active + 1 WHERE application_id = :application",
    ),
    (
        "I6 a task has the receipt of its acceptance",
        "UPDATE receipts SET resource_id = :fresh WHERE resource_id = :ready",
    ),
    (
        "I6 an acceptance's receipt names its task",
        "UPDATE tasks SET receipt_id = REPEAT('r', 32) WHERE task_id = :ready",
    ),
    (
        "I7 a task moves only as the state table allows, and never out of a terminal state",
        "UPDATE state_events SET from_state = 'FAILED' WHERE resource_id = :done",
    ),
    (
        "I7 a task moves only as the state table allows, and never out of a terminal state",
        "UPDATE state_events SET from_state = 'WAITING' WHERE resource_id = :done",
    ),
    (
        "I7 a finished task is as its last event says",
        "UPDATE tasks SET finished_at = finished_at + INTERVAL 1 MICROSECOND WHERE task_id = :done",
    ),
    (
        "I9 a namespace's results are numbered without gaps up to its stream's mark",
        "UPDATE namespace_streams SET last_sequence = last_sequence + 1 WHERE namespace_id = :namespace",
    ),
    (
        "I9 a namespace's results are numbered without gaps up to its stream's mark",
        "UPDATE result_events SET sequence = 7 WHERE namespace_id = :namespace AND sequence = 1",
    ),
    (
        "I9 each end and each review has exactly one result event",
        "DELETE FROM result_events WHERE task_id = :reviewed",
    ),
    (
        "I9 each end and each review has exactly one result event",
        (
            "INSERT INTO result_events SELECT namespace_id, 3, queue_id, task_id, epoch, task_state, error_code,"
            " occurred_at FROM result_events WHERE task_id = :done"
        ),
    ),
    ("I9 an ended or reviewed task has its event", "DELETE FROM result_events WHERE task_id = :reviewed"),
    (
        "lanes: the head is the earliest ready task",
        "UPDATE lanes SET head_dispatch_at = head_dispatch_at - INTERVAL 1 MICROSECOND WHERE queue_id = :queue",
    ),
    (
        "lanes: the head is the earliest ready task",
        "UPDATE lanes SET head_dispatch_at = NULL WHERE queue_id = :queue",
    ),
    ("lanes: a ready task has its lane", "DELETE FROM lanes WHERE queue_id = :queue"),
    ("lanes: occupied means that the key is held", "UPDATE lanes SET occupied = 0 WHERE queue_id = :queue"),
    (
        "lanes: a waiting task is ready or has a due time, no other task has either",
        "UPDATE tasks SET due_at = NULL WHERE task_id = :delayed",
    ),
    (
        "lanes: a waiting task is ready or has a due time, no other task has either",
        "UPDATE tasks SET unstarted_deadline_at = available_at WHERE task_id = :running",
    ),
    (
        "relations: a task belongs to its queue's namespace and has a payload",
        "DELETE FROM task_payloads WHERE task_id = :ready",
    ),
    ("relations: a task has a queue", "DELETE FROM queues WHERE queue_id = :queue"),
    (
        "relations: an attempt belongs where its task does",
        "UPDATE attempts SET namespace_id = :fresh WHERE attempt_id = :attempt",
    ),
    (
        "relations: queues, namespaces and applications have their counters",
        "DELETE FROM namespace_streams WHERE namespace_id = :namespace",
    ),
]


def bound(sql: str, scene: dict[str, bytes]) -> tuple[str, list[bytes]]:
    """Turn `:name` into the driver's placeholders."""
    params = []
    words = []
    for word in sql.replace(",", " ,").split(" "):
        if word.startswith(":"):
            params.append(scene[word[1:]])
            words.append("%s")
        else:
            words.append(word)
    return " ".join(words), params


@pytest.mark.parametrize(
    ("name", "sql"), CORRUPTIONS, ids=[f"{n}-{i}" for i, (n, _) in enumerate(CORRUPTIONS)]
)
def test_each_corruption_is_found(name: str, sql: str, pulse: Pulse, scene: dict[str, bytes]) -> None:
    """A row changed behind Orbit's back breaks the invariant that speaks of it."""
    found: list[str] = []

    def work(tx: Tx) -> None:
        statement, params = bound(sql, scene)
        assert tx.execute(statement, params) > 0
        found.extend(violation.name for violation in check_invariants(tx, scene["application"]))
        raise _Undo("undo")

    with pytest.raises(_Undo):
        pulse.session.run(work)
    assert name in found


def test_every_check_has_a_corruption_that_it_finds() -> None:
    """No check is in the list for show; those left out are proven elsewhere."""
    elsewhere = {
        "lanes: claimable means ready and free",  # a generated column
        "I13 no foreign keys",
        "I13 no transaction stays open",
    }
    assert set(invariant_names()) == {name for name, _ in CORRUPTIONS} | elsewhere


def test_a_sound_scene_has_no_violation(pulse: Pulse, scene: dict[str, bytes]) -> None:
    """The checker is silent about what Orbit itself has stored, in one application and in all."""
    assert pulse.session.run(lambda tx: check_invariants(tx, scene["application"])) == []
    assert pulse.session.run(check_invariants) == []


def test_another_applications_fault_is_out_of_scope(
    pulse: Pulse, scene: dict[str, bytes], tenants: Callable[[], Any]
) -> None:
    """A check of one application says nothing about others."""
    other = tenants()

    def work(tx: Tx) -> None:
        tx.execute("UPDATE queue_usage SET unfinished = 9 WHERE queue_id = %s", (other.queue_id,))
        assert check_invariants(tx, scene["application"]) == []
        assert check_invariants(tx, other.application_id) != []
        raise _Undo("undo")

    with pytest.raises(_Undo):
        pulse.session.run(work)
