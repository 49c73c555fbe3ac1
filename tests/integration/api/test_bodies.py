"""What bodies may not be, and what becomes of keys at the edge of their rules (F34, F35, F36)."""

from __future__ import annotations

import json
import re

import pytest

from orbit.domain import limits
from tests.support.api import Api, bearer, submit_body
from tests.support.tenants import Tenant


def spliced(tenant: Tenant, name: str, text: bytes) -> bytes:
    """Return a submit's body whose field `name` has this very text."""
    body = json.dumps(submit_body(tenant, **{name: "@@"})).encode()
    return body.replace(b'"@@"', text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("payload", b"NaN"),
        ("payload", b"-Infinity"),
        ("payload", b'{"a":1,"a":2}'),
        ("payload", b'[{"x":{"a":1,"\\u0061":2}}]'),
        ("payload", b'"\\ud800"'),
        ("payload", b'"\xff"'),
        ("payload", b'"\xed\xa0\x80"'),
        ("payload", b"01"),
        ("payload", b"[1,]"),
        ("payload", b"[" * 70 + b"]" * 70),
        ("payload", b"[" * 100_000),
        ("handler", b"null"),
        ("handler", b'""'),
        ("handler", b'"-x"'),
        ("handler", b'"w\xc3\xb6rk"'),
        ("concurrency_key", b"null"),
        ("business_key", b"null"),
        ("priority", b"1.0"),
        ("priority", b"-1"),
        ("priority", b"1" * 5_000),
        ("delay_ms", b"2592000001"),
        ("timeout_ms", b"0"),
        ("timeout_ms", b"null"),
        ("available_at", b'"2026-01-01T00:00:00"'),
        ("available_at", b'"2026-02-30T00:00:00.000000Z"'),
        ("retry", b'{"max_attempts":101}'),
        ("retry", b'{"max_attempts":1,"backoff":"Fixed"}'),
        ("retry", b'{"max_attempts":1,"jitter":1}'),
        ("on_unknown", b'"retry"'),
        ("Priority", b"1"),
    ],
)
async def test_a_bad_field_is_refused_by_name(api: Api, tenant: Tenant, name: str, text: bytes) -> None:
    """Always 400 INVALID_ARGUMENT, and no task comes of it."""
    refused = await api.post("/v1/tasks", tenant, spliced(tenant, name, text), key="k")
    assert (refused.status, refused.code) == (400, "INVALID_ARGUMENT"), refused.body
    assert refused.field is not None
    assert refused.field == "body" or re.split(r"[.\[]", refused.field)[0] == name
    queue = await api.get(f"/v1/queues/{tenant.queue_id.hex()}", tenant)
    assert queue.data["unfinished_tasks"] == "0"


async def test_a_whole_body_that_is_no_json_object(api: Api, tenant: Tenant) -> None:
    """Truncated, with trailing bytes, a byte order mark, UTF-16, empty, another type."""
    good = json.dumps(submit_body(tenant)).encode()
    for body in (
        good[:-1],
        good + b"x",
        good + good,
        b"\xef\xbb\xbf" + good,
        good.decode().encode("utf-16"),
        b"",
        b"[]",
        b"1",
    ):
        refused = await api.post("/v1/tasks", tenant, body, key="k")
        assert (refused.status, refused.code) == (400, "INVALID_ARGUMENT"), body[:20]


async def test_bodies_are_json_and_not_encoded(api: Api, tenant: Tenant) -> None:
    """A form and a compressed body are refused by the header that says so."""
    good = json.dumps(submit_body(tenant)).encode()
    key = ("Idempotency-Key", "k")
    form = await api.ask("POST", "/v1/tasks", [bearer(tenant), key, ("Content-Type", "text/plain")], good)
    assert (form.status, form.field) == (400, "Content-Type")
    bomb = await api.ask(
        "POST", "/v1/tasks", [bearer(tenant), key, ("Content-Encoding", "gzip")], b"\x1f\x8b" * 50
    )
    assert (bomb.status, bomb.field) == (400, "Content-Encoding")


async def test_sizes_are_bytes(api: Api, tenant: Tenant) -> None:
    """A payload of exactly 256 KiB passes, one byte more is 413; the body's own bound is 512 KiB."""
    for size, status in ((limits.PAYLOAD_MAX_BYTES, 201), (limits.PAYLOAD_MAX_BYTES + 1, 413)):
        text = b'"' + "\u00e9".encode() * ((size - 2) // 2) + b"x" * (size % 2) + b'"'
        assert len(text) == size
        answer = await api.post("/v1/tasks", tenant, spliced(tenant, "payload", text), key=f"k{size}")
        assert answer.status == status, answer.body[:200]
    huge = await api.post("/v1/tasks", tenant, b" " * (limits.BODY_MAX_BYTES + 1), key="huge")
    assert (huge.status, huge.code) == (413, "PAYLOAD_TOO_LARGE")


@pytest.mark.parametrize("key", ["k", "K", "k k", "\u00e9", "e\u0301", "\U0001f511" * 191, "a\u200b"])
async def test_concurrency_keys_match_by_their_bytes(api: Api, tenant: Tenant, key: str) -> None:
    """No folding, no normalisation: each comes back as it was sent."""
    accepted = await api.submit(tenant, "k", concurrency_key=key)
    assert (accepted.status, accepted.data["task"]["concurrency_key"]) == (201, key)


@pytest.mark.parametrize("key", ["k ", " k", "\u3000k", "k\u00a0", "a\nb", "a\x00b", "a\x85b", "k" * 192])
async def test_bad_concurrency_keys(api: Api, tenant: Tenant, key: str) -> None:
    """White space at an edge, control characters, more than 191 characters."""
    refused = await api.submit(tenant, "k", concurrency_key=key)
    assert (refused.status, refused.field) == (400, "concurrency_key")


async def test_empty_keys_count_as_absent(api: Api, tenant: Tenant) -> None:
    """They aren't shown, and are the same content as a field left out."""
    first = await api.submit(tenant, "k", concurrency_key="", business_key="", delay_ms=0, priority=0)
    assert not {"concurrency_key", "business_key", "delay_ms"} & set(first.data["task"])
    assert (await api.submit(tenant, "k")).status == 200


async def test_idempotency_keys(api: Api, tenant: Tenant) -> None:
    """1 to 191 bytes of 0x21 to 0x7E, matched exactly; case matters."""
    for key in ("!", "~" * 191, "k", "K"):
        assert (await api.submit(tenant, key)).status == 201, key
    for headers in (
        [],
        [("Idempotency-Key", "")],
        [("Idempotency-Key", "a b")],
        [("Idempotency-Key", "~" * 192)],
    ):
        body = json.dumps(submit_body(tenant)).encode()
        refused = await api.ask("POST", "/v1/tasks", [bearer(tenant), *headers], body)
        assert (refused.status, refused.field) == (400, "Idempotency-Key"), headers


async def test_four_byte_characters_everywhere(api: Api, tenant: Tenant) -> None:
    """Stored and returned exactly, whatever the database's own default charset (C35)."""
    face = "\U0001f600"
    accepted = await api.submit(tenant, "k", business_key=face, concurrency_key=face, payload={face: face})
    task_id = accepted.data["task"]["id"]
    read = (await api.get(f"/v1/tasks/{task_id}", tenant)).data
    assert (read["business_key"], read["concurrency_key"], read["payload"]) == (face, face, {face: face})
    assert (await api.post(f"/v1/tasks/{task_id}:cancel", tenant, {"reason": face}, key="c")).status == 200


@pytest.mark.parametrize(
    "path", ["/v1/dispatchers", "/v1/queues/{queue}", "/v1/tasks/{task}", "/v1/tasks/{task}/attempts/1"]
)
async def test_parameters_that_a_read_doesnt_take_are_refused(api: Api, tenant: Tenant, path: str) -> None:
    """As strict as bodies: whoever sends one believes that it does something. Strangers learn nothing."""
    task = (await api.submit(tenant, "k")).data["task"]["id"]
    target = path.format(queue=tenant.queue_id.hex(), task=task) + "?fields=id"
    refused = await api.get(target, tenant)
    assert (refused.status, refused.field) == (400, "fields")
    assert (await api.get(target, "orbit_" + "0" * 32 + "_" + "0" * 64)).status == 401


async def test_parameters_that_a_command_doesnt_take_are_refused(api: Api, tenant: Tenant) -> None:
    """Nothing of the command happens."""
    refused = await api.post("/v1/tasks?dry_run=1", tenant, submit_body(tenant), key="k")
    assert (refused.status, refused.field) == (400, "dry_run")
    queue = await api.get(f"/v1/queues/{tenant.queue_id.hex()}", tenant)
    assert queue.data["unfinished_tasks"] == "0"
