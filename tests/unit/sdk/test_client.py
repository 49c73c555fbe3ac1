"""The HTTP client over a transport that answers from a script: what is sent, what is read, what is raised."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import trio

from orbit_sdk import (
    APIError,
    BatchItem,
    Client,
    ConfigureQueue,
    CreateQueue,
    OutcomeUnknown,
    Raw,
    Request,
    Response,
    RetryPolicy,
    SubmitTask,
    TaskFilter,
    TransportError,
    decode_exact,
)

ID = "0123456789abcdef0123456789abcdef"
SUMMARY: dict[str, Any] = {
    "id": ID,
    "namespace_id": ID,
    "queue_id": ID,
    "handler": "object.update",
    "handler_version": "v1",
    "payload_version": "v1",
    "state": "WAITING",
    "revision": "18446744073709551615",
    "priority": 0,
    "created_at": "2026-01-31T08:00:00.000001Z",
    "updated_at": "2026-01-31T08:00:00.000000Z",
    "available_at": "2026-01-31T08:00:00.000000Z",
    "attempts_used": 0,
    "max_attempts": 1,
    "epoch": "0",
}
QUEUE: dict[str, Any] = {
    "id": ID,
    "namespace_id": ID,
    "name": "mail",
    "paused": False,
    "max_concurrency": 1,
    "rate_per_second": 2,
    "max_unfinished_tasks": 3,
    "unfinished_tasks": "9007199254740993",
    "revision": "1",
}


@dataclass
class ScriptedTransport:
    """Answers requests in the order of its script and keeps them."""

    answers: deque[tuple[int, bytes, dict[bytes, bytes]]] = field(default_factory=deque)
    requests: list[Request] = field(default_factory=list)

    def answer(self, data: Any, status: int = 200) -> None:
        self.answer_bytes(json.dumps({"request_id": ID, "data": data}).encode(), status)

    def answer_bytes(self, body: bytes, status: int, **headers: str) -> None:
        lower = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
        self.answers.append((status, body, lower))

    def refuse(self, status: int, code: str, *, details: Any = None, **headers: str) -> None:
        error: dict[str, Any] = {"code": code, "message": "no"}
        if details is not None:
            error["details"] = details
        self.answer_bytes(json.dumps({"request_id": ID, "error": error}).encode(), status, **headers)

    async def send(self, request: Request) -> Response:
        self.requests.append(request)
        status, body, headers = self.answers.popleft()
        return Response(status=status, headers=headers, body=body)

    async def aclose(self) -> None:
        pass

    @property
    def last(self) -> Request:
        return self.requests[-1]


@pytest.fixture
def transport() -> ScriptedTransport:
    return ScriptedTransport()


@pytest.fixture
def client(transport: ScriptedTransport) -> Client:
    return Client("http://orbit.test:8080/base/", "orbit_t", transport=transport)


def task(**fields: Any) -> SubmitTask:
    values: dict[str, Any] = {
        "queue_id": ID,
        "handler": "object.update",
        "handler_version": "v1",
        "payload_version": "v1",
        "payload": None,
        **fields,
    }
    return SubmitTask(**values)


async def test_a_submit_sends_its_fields_key_and_credential(
    client: Client, transport: ScriptedTransport
) -> None:
    """Omitted fields stay out of the body, given ones go in as they are."""
    transport.answer({"deduplicated": False, "task": SUMMARY}, 201)
    command = task(
        payload={"n": 2**70, "d": Decimal("1.10")},
        delay_ms=0,
        retry=RetryPolicy(max_attempts=3, backoff="FIXED"),
        start_deadline_at=datetime(2026, 2, 1, tzinfo=UTC),
    )
    result = await client.submit(command, idempotency_key="key-1")
    request = transport.last
    assert (request.method, request.target) == ("POST", "/base/v1/tasks")
    headers = dict(request.headers)
    assert headers[b"Authorization"] == b"Bearer orbit_t"
    assert headers[b"Idempotency-Key"] == b"key-1"
    assert headers[b"Host"] == b"orbit.test:8080"
    assert headers[b"Content-Length"] == str(len(request.body)).encode()
    assert b'"payload":{"n":1180591620717411303424,"d":1.10}' in request.body
    sent = json.loads(request.body)
    assert sent["delay_ms"] == 0
    assert sent["retry"] == {"max_attempts": 3, "backoff": "FIXED"}
    assert sent["start_deadline_at"] == "2026-02-01T00:00:00.000000Z"
    assert "business_key" not in sent
    assert result.deduplicated is False
    assert result.task.revision == 2**64 - 1
    assert result.task.created_at == datetime(2026, 1, 31, 8, 0, 0, 1, tzinfo=UTC)


async def test_without_a_token_no_credential_is_sent(transport: ScriptedTransport) -> None:
    """An empty one would be a malformed header."""
    transport.answer({})
    await Client("http://orbit.test", transport=transport).check_ready()
    assert [name for name, _ in transport.last.headers] == [b"Host", b"Accept"]


async def test_raw_payloads_and_outputs_keep_every_byte(client: Client, transport: ScriptedTransport) -> None:
    """C33: number text, key order and white space survive in both directions."""
    document = (
        b'{"b": 1.10, "a": [9007199254740993, 18446744073709551616, 1e-400, 123456789012345678901234567890]}'
    )
    transport.answer({"deduplicated": True, "task": SUMMARY})
    await client.submit(task(payload=Raw(document)), idempotency_key="k")
    assert b'"payload":' + document in transport.last.body
    body = json.dumps({"request_id": ID, "data": SUMMARY})[:-2]
    transport.answer_bytes(body.encode() + b', "payload": 1.50, "output": ' + document + b"}}", 200)
    found = await client.get_task(ID)
    assert bytes(found.output) == document
    assert bytes(found.payload) == b"1.50"
    value = decode_exact(found.output)
    assert value["a"] == [2**53 + 1, 2**64, Decimal("1e-400"), 123456789012345678901234567890]
    assert str(value["b"]) == "1.10"


async def test_refusals_carry_everything_the_server_said(
    client: Client, transport: ScriptedTransport
) -> None:
    """Code, status, message, request id, details and a checked retry_after."""
    transport.refuse(429, "QUEUE_FULL", details={"field": "queue_id"}, retry_after="1")
    with pytest.raises(APIError) as caught:
        await client.submit(task(), idempotency_key="k")
    error = caught.value
    assert (error.code, error.status, error.message, error.request_id) == ("QUEUE_FULL", 429, "no", ID)
    assert (error.retry_after, error.details) == (1, {"field": "queue_id"})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("3600", 3600), ("3601", 0), ("-1", 0), ("soon", 0), ("1.5", 0), ("٣", 0), ("99999999999", 0)],
)
async def test_unusable_retry_after_counts_as_none(
    client: Client, transport: ScriptedTransport, text: str, seconds: int
) -> None:
    """Invalid or over an hour is 0."""
    transport.refuse(503, "UNAVAILABLE", retry_after=text)
    with pytest.raises(APIError) as caught:
        await client.get_task(ID)
    assert caught.value.retry_after == seconds


async def test_answers_that_are_not_orbits_leave_a_write_in_doubt(
    client: Client, transport: ScriptedTransport
) -> None:
    """A gateway's 502 or an unreadable 201 proves nothing about a write, and is a plain failure for a read."""
    for status, body in ((502, b"<html>"), (504, b""), (201, b"{"), (200, b"{}")):
        transport.answer_bytes(body, status)
        with pytest.raises(OutcomeUnknown):
            await client.submit(task(), idempotency_key="k")
    transport.answer_bytes(b"{}", 200)
    with pytest.raises(TransportError) as caught:
        await client.get_task(ID)
    assert not isinstance(caught.value, OutcomeUnknown)
    transport.answer_bytes(b"<html>", 404)
    with pytest.raises(APIError) as refused:
        await client.submit(task(), idempotency_key="k")
    assert refused.value.code == "HTTP_404"


async def test_pages_are_followed_under_the_same_filters(
    client: Client, transport: ScriptedTransport
) -> None:
    """Every request of an iteration repeats every filter; cursors are quoted."""
    transport.answer({"tasks": [SUMMARY, SUMMARY], "next_cursor": "a/b+c="})
    transport.answer({"tasks": [SUMMARY]})
    filters = TaskFilter(
        queue_id=ID, state="FAILED", business_key="ä b&c", created_from=datetime(2026, 1, 1, tzinfo=UTC)
    )
    assert [each.id async for each in client.iterate_tasks(filters, limit=2)] == [ID] * 3
    first, second = (request.target for request in transport.requests)
    assert first == (
        f"/base/v1/tasks?queue_id={ID}&state=FAILED&business_key=%C3%A4%20b%26c"
        "&created_from=2026-01-01T00%3A00%3A00.000000Z&limit=2"
    )
    assert second == first + "&cursor=a/b%2Bc%3D" or second == first + "&cursor=a%2Fb%2Bc%3D"


async def test_an_error_ends_an_iteration_instead_of_restarting_it(
    client: Client, transport: ScriptedTransport
) -> None:
    """What was not read is not claimed to be."""
    transport.answer({"tasks": [SUMMARY], "next_cursor": "c"})
    transport.refuse(503, "UNAVAILABLE")
    tasks = client.iterate_tasks(TaskFilter(queue_id=ID))
    assert (await anext(tasks)).id == ID
    with pytest.raises(APIError):
        await anext(tasks)


async def test_waiting_for_a_task_ends_with_its_end(
    client: Client, transport: ScriptedTransport, autojump_clock: trio.testing.MockClock
) -> None:
    """Also where a person has to decide: it will not move by itself."""
    for state in ("WAITING", "LEASED", "RUNNING", "NEEDS_REVIEW"):
        transport.answer({**SUMMARY, "state": state, "payload": None})
    assert (await client.wait_until_ended(ID)).state == "NEEDS_REVIEW"
    assert len(transport.requests) == 4


async def test_batches_queues_cancels_attempts_and_dispatchers(
    client: Client, transport: ScriptedTransport
) -> None:
    """The other routes: paths, bodies and typed answers."""
    transport.answer(
        {
            "items": [
                {"outcome": "ACCEPTED", "task": SUMMARY},
                {"outcome": "REFUSED", "error": {"code": "QUEUE_FULL", "message": "full"}},
                {"outcome": "UNKNOWN"},
            ]
        }
    )
    item = BatchItem(
        queue_id=ID, handler="h", handler_version="v1", payload_version="v1", payload=1, idempotency_key="k1"
    )
    items = await client.submit_batch([item, item, item])
    assert [each.outcome for each in items] == ["ACCEPTED", "REFUSED", "UNKNOWN"]
    assert items[1].error is not None
    assert items[1].error.code == "QUEUE_FULL"
    assert b"Idempotency-Key" not in dict(transport.last.headers)
    assert json.loads(transport.last.body)["items"][0]["idempotency_key"] == "k1"

    transport.answer({"deduplicated": False, "queue": QUEUE}, 201)
    created = await client.create_queue(
        CreateQueue(name="mail", max_concurrency=1, rate_per_second=2), idempotency_key="q"
    )
    assert created.queue.unfinished_tasks == 2**53 + 1
    assert json.loads(transport.last.body) == {"name": "mail", "max_concurrency": 1, "rate_per_second": 2}

    transport.answer({"deduplicated": False, "queue": QUEUE})
    command = ConfigureQueue(
        expected_revision=2**63, reason="r", paused=True, max_concurrency=1, rate_per_second=1,
        max_unfinished_tasks=1,
    )  # fmt: skip
    await client.configure_queue(ID, command, idempotency_key="c")
    assert transport.last.target == f"/base/v1/queues/{ID}:configure"
    assert json.loads(transport.last.body)["expected_revision"] == str(2**63)

    transport.answer({"deduplicated": False, "task": SUMMARY})
    await client.cancel_task(ID, idempotency_key="x", reason="over")
    assert transport.last.target == f"/base/v1/tasks/{ID}:cancel"
    assert json.loads(transport.last.body) == {"reason": "over"}

    attempt = {"attempt_id": ID, "n": 1, "epoch": "1", "state": "SUCCEEDED", "queue_id": ID,
               "leased_at": "2026-01-31T08:00:00.000000Z", "concurrency_token": "18446744073709551615"}  # fmt: skip
    transport.answer({"attempts": [attempt]})
    [found] = [each async for each in client.iterate_attempts(ID)]
    assert found.concurrency_token == 2**64 - 1

    transport.answer(
        {
            "dispatchers": [
                {"id": ID, "url": "ws://d", "sessions": 2, "heartbeat_at": "2026-01-31T08:00:00.000000Z"}
            ]
        }
    )
    assert [each.sessions for each in await client.list_dispatchers()] == [2]


async def test_keys_are_checked_before_anything_is_sent(client: Client, transport: ScriptedTransport) -> None:
    """1 to 191 visible ASCII characters."""
    for key in ("", "a b", "ä", "x" * 192, "a\n"):
        with pytest.raises(ValueError, match="idempotency key"):
            await client.submit(task(), idempotency_key=key)
    with pytest.raises(ValueError, match="token"):
        Client("http://h", "a\r\nb")
    with pytest.raises(ValueError, match="time zone"):
        await client.submit(task(available_at=datetime(2026, 1, 1)), idempotency_key="k")
    assert transport.requests == []
    transport.refuse(404, "NOT_FOUND")
    with pytest.raises(APIError):
        await client.get_task("../a b?")
    assert transport.last.target == "/base/v1/tasks/..%2Fa%20b%3F"


def test_a_client_from_the_environment(tmp_path: Path) -> None:
    """URL and token, or a credential file; a missing token says what to set."""
    assert Client.from_env({"ORBIT_URL": "http://h:1", "ORBIT_TOKEN": "t"}).token == "t"
    file = tmp_path / "credentials.json"
    file.write_text(json.dumps({"token": "from-file", "namespace_id": ID, "queue_id": ID}))
    client = Client.from_env({"ORBIT_CREDENTIALS_FILE": str(file)})
    assert (client.url, client.token) == ("http://127.0.0.1:8080", "from-file")
    with pytest.raises(ValueError, match="ORBIT_TOKEN"):
        Client.from_env({})
    with pytest.raises(ValueError, match="http URL"):
        Client("ftp://x", "t")
