"""C09: for every unique index, a row that is already there; the guilty command alone fails, the others go on."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from orbit.domain.errors import InvariantViolation, OrbitError
from orbit.domain.ids import new_id
from orbit.domain.keys import key_digest
from orbit.domain.states import Outcome
from orbit.pulse.commands import PromoteTasks, TaskAnswer
from orbit.store.connection import connect
from orbit.store.dsn import Dsn
from orbit.store.sql.applications import lock_application
from orbit.store.sql.attempts import lock_leases
from orbit.store.sql.events import allocate_sequences
from orbit.store.transaction import Rank, Tx
from tests.support.pulse import Pulse, Worker, succeeded
from tests.support.rows import set_columns


def test_a_candidate_task_id_that_is_taken(pulse: Pulse) -> None:
    """tasks' primary key: the one submit is INTERNAL, its neighbours in the group are accepted."""
    taken = pulse.submit()
    commands = [pulse.command(), pulse.command(task_id=taken), pulse.command()]
    first, second, third = pulse.submit_each(commands)
    assert isinstance(first, TaskAnswer)
    assert isinstance(second, InvariantViolation)
    assert isinstance(third, TaskAnswer)
    assert pulse.usage().unfinished == 3


def test_one_identity_twice_in_a_group(pulse: Pulse) -> None:
    """receipts' primary key: the first decides, the second is judged against it, in the same transaction."""
    command = pulse.command()
    again = pulse.command(idempotency_key=command.idempotency_key, task_id=new_id())
    first, second = (succeeded(answer) for answer in pulse.submit_each([command, again]))
    assert (first.deduplicated, second.deduplicated) == (False, True)
    assert second.task == first.task
    one, two = pulse.cancellation(command.task_id), pulse.cancellation(command.task_id)
    cancelled, refused = pulse.cancel_each([one, two])
    assert not isinstance(cancelled, OrbitError)
    assert isinstance(refused, OrbitError)
    assert refused.code == "STATE_CONFLICT"


def test_an_attempt_id_that_is_taken(pulse: Pulse, worker: Worker) -> None:
    """attempts' unique id: that claim takes nothing, the next one with fresh candidates does."""
    pulse.submit_many(2)
    held = worker.claim_one()
    outcome = pulse.tick(worker.claiming(1, attempt_ids=(held.attempt_id,)))[0]
    assert isinstance(outcome, InvariantViolation)
    assert pulse.usage().active == 1
    assert len(worker.claim(1)) == 1


def test_a_key_row_that_somebody_reset(pulse: Pulse, worker: Worker) -> None:
    """UNIQUE(namespace, key, token) is the last judge: a token is never given twice, whatever the key row says."""
    pulse.submit_many(2, concurrency_key="k")
    held = worker.claim_one()
    succeeded(worker.decline(held))
    where = {"namespace_id": pulse.tenant.namespace_id, "key_digest": key_digest("k")}
    last = pulse.key("k").last_token
    set_columns(pulse.session, "concurrency_keys", {"last_token": 0}, **where)
    assert isinstance(pulse.tick(worker.claiming())[0], InvariantViolation)
    set_columns(pulse.session, "concurrency_keys", {"last_token": last}, **where)
    assert worker.claim_one().concurrency_token == last + 1


def test_a_guilty_result_doesnt_take_its_neighbours_along(pulse: Pulse, worker: Worker) -> None:
    """A result that can't be stored is INTERNAL alone; what shared its tick is done, each once."""
    pulse.submit_many(3)
    held = worker.claim(3)
    for outcome in pulse.tick(*map(worker.starting, held)):
        succeeded(outcome)
    guilty = worker.finishing(held[1], Outcome.FAILED, error_code="x" * 65)
    one, bad, other = pulse.tick(worker.finishing(held[0]), guilty, worker.finishing(held[2]))
    assert isinstance(bad, InvariantViolation)
    assert (one.task_state, other.task_state) == ("SUCCEEDED", "SUCCEEDED")
    assert pulse.task(held[1].task_id).state == "RUNNING"


def test_promoting_twice_in_a_group_and_what_is_gone(pulse: Pulse) -> None:
    """Unknown ids, ids of others and repeated ids are passed over."""
    delayed = pulse.submit(delay_ms=60_000)
    outcomes = pulse.tick(
        PromoteTasks(task_ids=(delayed, secrets.token_bytes(16))), PromoteTasks(task_ids=(delayed,))
    )
    assert [one.count for one in outcomes] == [0, 0]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (Rank.ATTEMPT, "application"),
        (Rank.STREAM, "attempts"),
        (Rank.STREAM, "application"),
        (Rank.SUBSCRIPTION, "application"),
        (Rank.DELIVERY, "streams"),
    ],
)
def test_a_lock_of_a_lower_rank_after_a_higher_one_is_refused(
    dsn: Dsn, pulse: Pulse, first: Rank, then: str
) -> None:
    """Lock order is enforced where locks are taken: skip ranks, never go back."""
    connection = connect(dsn)
    tx = Tx(connection)
    tx.enter(first)
    locks: dict[str, Any] = {
        "application": lambda: lock_application(tx, pulse.tenant.application_id),
        "attempts": lambda: lock_leases(tx, [new_id()]),
        "streams": lambda: allocate_sequences(tx, {pulse.tenant.namespace_id: 1}),
    }
    with pytest.raises(InvariantViolation, match="rank"):
        locks[then]()
    connection.rollback()
    connection.close()
