"""C34, C35, C36, F36, F37: keys match byte for byte, text and bodies come back as they came, numbers never wrap."""

from __future__ import annotations

import itertools

import pytest

from orbit.domain.errors import IdempotencyConflict
from orbit.domain.limits import (
    ERROR_MESSAGE_MAX_BYTES,
    HANDLER_MAX_CHARS,
    OUTPUT_MAX_BYTES,
    PAYLOAD_MAX_BYTES,
    UINT64_MAX,
)
from orbit.domain.states import Outcome
from orbit.localdb.instance import Instance
from orbit.pulse.queries import ListTasks, read_task, read_tasks
from orbit.store.dsn import Dsn
from tests.support.pulse import Pulse, Worker, pulse_of, repeated, succeeded
from tests.support.rows import set_columns

COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"
# Pairs that some collation, padding or normalisation holds to be equal.
ALIKE = [
    "k",
    "K",
    "k ",
    "k  ",
    COMPOSED,
    DECOMPOSED,
    "\u00df",
    "ss",
    "\u1e9e",
    "\ufb01",
    "fi",
    "\u212b",
    "\u00c5",
    "a\u200b",
    "a",
]
LONGEST = "\U0001f680" * 191
CONCURRENCY = [key for key in ALIKE if key == key.strip()] + [LONGEST, LONGEST[:-1]]


def test_concurrency_keys_match_by_their_bytes_only(pulse: Pulse, worker: Worker) -> None:
    """F36: keys that look or sort alike are different permits; the same bytes are one."""
    for key in CONCURRENCY:
        pulse.submit_many(2, concurrency_key=key)
    held = worker.claim(64)
    assert sorted(one.concurrency_key or "" for one in held) == sorted(CONCURRENCY)
    stored = {pulse.task(one.task_id).concurrency_key for one in held}
    assert stored == {key.encode() for key in CONCURRENCY}
    assert worker.claim(64) == ()
    assert len(
        {row.key_digest for row in pulse.rows("concurrency_keys", namespace_id=pulse.tenant.namespace_id)}
    ) == len(CONCURRENCY)


def test_business_keys_filter_by_their_bytes_only(pulse: Pulse) -> None:
    """C34: each filter finds exactly its own task, edge spaces and accents included."""
    keys = [*ALIKE, " k", LONGEST, "\n", "\x00"]
    made = {key: pulse.submit(business_key=key) for key in keys}
    for key, task_id in made.items():
        query = ListTasks(queue_id=pulse.tenant.queue_id, limit=10, business_key=key)
        page = pulse.session.run(lambda tx, query=query: read_tasks(tx, pulse.tenant.token, query))  # type: ignore[misc]
        assert [(task.task_id, task.business_key) for task in page.items] == [(task_id, key)]


def test_idempotency_keys_are_exact(pulse: Pulse) -> None:
    """C34: keys that differ in case are two commands; the same key with other content is a conflict."""
    commands = [pulse.command(idempotency_key=key) for key in ("key", "Key", "KEY", "key.", "x" * 191)]
    first = [succeeded(answer).task.task_id for answer in pulse.submit_each(commands)]
    assert len(set(first)) == len(commands)
    again = [succeeded(answer) for answer in pulse.submit_each([repeated(one) for one in commands])]
    assert [answer.task.task_id for answer in again] == first
    assert all(answer.deduplicated for answer in again)
    other = pulse.command(idempotency_key="key", payload=b"{ }")
    assert isinstance(pulse.submit_each([other])[0], IdempotencyConflict), "white space is content"


@pytest.mark.parametrize(
    "payload",
    [
        b"9007199254740993",
        b"18446744073709551616",
        b"1.10",
        b"1e-400",
        b"123456789012345678901234567890",
        b'{"b":1,"a":2 }',
        b'"\\u0000\\"\\\\%s %% \'"',
        '"\U0001f680 \u00e9 e\u0301"'.encode(),
        b"null",
    ],
)
def test_payload_and_output_come_back_byte_for_byte(pulse: Pulse, worker: Worker, payload: bytes) -> None:
    """F37, C35: no number is rounded, no key reordered, no character lost, in or out."""
    task_id = pulse.submit(payload=payload)
    succeeded(worker.finish(worker.run_one(), output=payload))
    detail = pulse.session.run(lambda tx: read_task(tx, pulse.tenant.token, task_id))
    assert (detail.payload, detail.output) == (payload, payload)


@pytest.mark.parametrize("size", [PAYLOAD_MAX_BYTES - 1, PAYLOAD_MAX_BYTES])
def test_the_largest_bodies_are_kept_whole(pulse: Pulse, worker: Worker, size: int) -> None:
    """C36: payloads and outputs at their limit, with multi-byte characters and quotes at the edge, aren't cut."""
    assert OUTPUT_MAX_BYTES == PAYLOAD_MAX_BYTES
    tail = "'\\\"\U0001f680".encode()
    body = b'"' + b"x" * (size - len(tail) - 2) + tail + b'"'
    assert len(body) == size
    task_id = pulse.submit(payload=body)
    succeeded(worker.finish(worker.run_one(), output=body))
    detail = pulse.session.run(lambda tx: read_task(tx, pulse.tenant.token, task_id))
    assert detail.payload == body
    assert detail.output == body


def test_a_whole_group_of_the_largest_bodies_fits_one_statement(pulse: Pulse) -> None:
    """The group's bound on bodies stays below the smaller server's packet limit, escaping included."""
    body = b'"' + b"\\'" * (PAYLOAD_MAX_BYTES // 2 - 1) + b'"'
    commands = [pulse.command(payload=body) for _ in range(16)]
    commits = pulse.session.stats.commits
    ids = [succeeded(answer).task.task_id for answer in pulse.submit_each(commands)]
    assert pulse.session.stats.commits == commits + 1
    stored = pulse.row("task_payloads", task_id=ids[-1]).payload
    assert stored == body


def test_an_error_message_of_four_byte_characters_is_kept(pulse: Pulse, worker: Worker) -> None:
    """C35: emoji in the error text are stored and returned exactly, up to the limit."""
    message = "\U0001f4a5" * (ERROR_MESSAGE_MAX_BYTES // 4)
    task_id = pulse.submit()
    held = worker.run_one()
    succeeded(worker.finish(held, Outcome.FAILED, error_code="X" * 64, error_message=message))
    assert pulse.task(task_id).error_message == message
    assert pulse.attempt(held).error_message == message


def test_strict_mode_is_the_sessions_own(instance: Instance, dsn: Dsn, pulse: Pulse) -> None:
    """C36: on a server that cuts what doesn't fit, for us it is an error."""
    task_id = pulse.submit()
    (default,) = instance.execute("SELECT @@GLOBAL.sql_mode")[0]
    instance.execute("SET GLOBAL sql_mode = ''")
    try:
        with pulse_of(dsn, pulse.tenant) as own:
            modes = own.session.run(lambda tx: tx.value("SELECT @@SESSION.sql_mode"))
            assert "STRICT_ALL_TABLES" in modes
            with pytest.raises(Exception, match="1406"):
                set_columns(own.session, "tasks", {"handler": "h" * (HANDLER_MAX_CHARS + 1)}, task_id=task_id)
    finally:
        instance.execute(f"SET GLOBAL sql_mode = '{default}'")
    assert pulse.task(task_id).handler == "work"


@pytest.mark.parametrize(
    ("table", "column", "limit"),
    [
        ("task_payloads", "payload", PAYLOAD_MAX_BYTES),
        ("attempt_outputs", "output", OUTPUT_MAX_BYTES),
        ("late_evidence", "output", OUTPUT_MAX_BYTES),
        ("tasks", "error_message", ERROR_MESSAGE_MAX_BYTES),
        ("attempts", "error_message", ERROR_MESSAGE_MAX_BYTES),
    ],
)
def test_columns_are_no_smaller_than_the_limits(pulse: Pulse, table: str, column: str, limit: int) -> None:
    """C36: what passes the door fits, in bytes."""
    room = pulse.session.run(
        lambda tx: tx.value(
            "SELECT character_octet_length FROM information_schema.columns"
            " WHERE table_schema = DATABASE() AND table_name = %s AND column_name = %s",
            (table, column),
        )
    )
    assert room >= limit
    with pytest.raises(Exception, match="1406"):
        set_columns(
            pulse.session, "applications", {"name": "x" * 129}, application_id=pulse.tenant.application_id
        )


def test_tokens_stop_before_they_wrap(pulse: Pulse, worker: Worker) -> None:
    """F37: a claim needs room for its own token and for the release; then the key is refused, not wrapped."""
    pulse.submit(concurrency_key="k")
    succeeded(worker.decline(worker.claim_one()))
    where = {"namespace_id": pulse.tenant.namespace_id}
    set_columns(pulse.session, "concurrency_keys", {"last_token": UINT64_MAX - 2}, **where)
    held = worker.claim_one()
    assert held.concurrency_token == UINT64_MAX - 1
    succeeded(worker.decline(held))
    assert pulse.key("k").last_token == UINT64_MAX
    assert worker.claim(8) == ()
    other = pulse.submit(concurrency_key="other")
    assert [one.task_id for one in worker.claim(8)] == [other], "an exhausted key is in nobody's way"


def test_tokens_of_a_key_rise_through_every_kind_of_end(pulse: Pulse, worker: Worker) -> None:
    """I4: strictly increasing over tasks, queues and ends."""
    tokens = []
    for end in ("finish", "decline", "cancel", "finish"):
        task_id = pulse.submit(concurrency_key="k", handler=end)
        held = worker.claim_one(handlers=((end, "1"),))
        assert held.concurrency_token is not None
        tokens.append(held.concurrency_token)
        if end == "finish":
            succeeded(worker.start(held))
            succeeded(worker.finish(held))
        elif end == "decline":
            succeeded(worker.decline(held))
            succeeded(pulse.cancel(task_id))
        else:
            succeeded(pulse.cancel(task_id))
    assert all(a < b for a, b in itertools.pairwise(tokens))
