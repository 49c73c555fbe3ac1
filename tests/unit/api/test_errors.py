"""Failures as callers see them."""

from __future__ import annotations

import json

import pytest

from orbit.api.envelope import failed, success
from orbit.api.errors import INTERNAL_MESSAGE, failure_of, http_fault, is_our_fault, unwrap
from orbit.domain import errors


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.InvalidArgument("no", field="x"), 400, "INVALID_ARGUMENT"),
        (errors.Unauthenticated("no"), 401, "UNAUTHENTICATED"),
        (errors.PermissionDenied("no"), 403, "PERMISSION_DENIED"),
        (errors.NotFound("no"), 404, "NOT_FOUND"),
        (errors.IdempotencyConflict("no"), 409, "IDEMPOTENCY_CONFLICT"),
        (errors.PayloadTooLarge("no"), 413, "PAYLOAD_TOO_LARGE"),
        (errors.QueueFull("no"), 429, "QUEUE_FULL"),
        (errors.OutcomeUnknown("no"), 503, "UNAVAILABLE"),
    ],
)
def test_each_error_has_its_answer(error: errors.OrbitError, status: int, code: str) -> None:
    failure = failure_of(error)
    assert (failure.status, failure.code, failure.message) == (status, code, error.message)
    assert not is_our_fault(error)


@pytest.mark.parametrize(("milliseconds", "seconds"), [(None, b"1"), (1, b"1"), (1_000, b"1"), (1_001, b"2")])
def test_advice_is_in_whole_seconds(milliseconds: int | None, seconds: bytes) -> None:
    failure = failure_of(errors.Unavailable("later", retry_after_ms=milliseconds))
    assert (b"retry-after", seconds) in failure.headers


@pytest.mark.parametrize(
    "error", [errors.InvariantViolation("row 7 is torn"), ZeroDivisionError("secret"), KeyError(1)]
)
def test_our_own_faults_tell_nothing(error: Exception) -> None:
    failure = failure_of(error)
    assert (failure.status, failure.code, failure.message) == (500, "INTERNAL", INTERNAL_MESSAGE)
    assert is_our_fault(error)


def test_groups_of_one_are_opened() -> None:
    inner = errors.NotFound("x")
    assert unwrap(ExceptionGroup("a", [ExceptionGroup("b", [inner])])) is inner
    two = ExceptionGroup("a", [inner, ValueError()])
    assert unwrap(two) is two


def test_unknown_http_faults_are_400() -> None:
    assert [http_fault(status).status for status in (400, 431, 501, 999)] == [400, 431, 501, 400]


def test_the_envelope() -> None:
    reply = success("ab" * 16, 201, {"x": 1})
    assert json.loads(reply.body) == {"request_id": "ab" * 16, "data": {"x": 1}}
    assert dict(reply.headers)[b"x-request-id"] == b"ab" * 16
    bad = failed("cd" * 16, failure_of(errors.InvalidArgument("is wrong", field="name")))
    assert json.loads(bad.body) == {
        "request_id": "cd" * 16,
        "error": {"code": "INVALID_ARGUMENT", "message": "name: is wrong", "details": {"field": "name"}},
    }
    assert "details" not in json.loads(failed("cd" * 16, failure_of(errors.NotFound("x"))).body)["error"]
