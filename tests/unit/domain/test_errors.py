"""Codes and statuses of the error tree are a wire contract."""

from __future__ import annotations

import pytest

from orbit.domain import errors

WIRE = {
    errors.InvalidArgument: ("INVALID_ARGUMENT", 400),
    errors.Unauthenticated: ("UNAUTHENTICATED", 401),
    errors.PermissionDenied: ("PERMISSION_DENIED", 403),
    errors.NotFound: ("NOT_FOUND", 404),
    errors.MethodNotAllowed: ("METHOD_NOT_ALLOWED", 405),
    errors.RequestTimeout: ("REQUEST_TIMEOUT", 408),
    errors.IdempotencyConflict: ("IDEMPOTENCY_CONFLICT", 409),
    errors.StateConflict: ("STATE_CONFLICT", 409),
    errors.PayloadTooLarge: ("PAYLOAD_TOO_LARGE", 413),
    errors.QueueFull: ("QUEUE_FULL", 429),
    errors.QuotaExceeded: ("QUOTA_EXCEEDED", 429),
    errors.RateLimited: ("RATE_LIMITED", 429),
    errors.QueuePaused: ("QUEUE_PAUSED", 409),
    errors.CancelRequested: ("CANCELLED", 409),
    errors.DeadlineExceeded: ("DEADLINE_EXCEEDED", 409),
    errors.StaleAttempt: ("STALE_ATTEMPT", 409),
    errors.Unavailable: ("UNAVAILABLE", 503),
    errors.OutcomeUnknown: ("UNAVAILABLE", 503),
    errors.InvariantViolation: ("INTERNAL", 500),
}


@pytest.mark.parametrize("kind", WIRE)
def test_code_and_status(kind: type[errors.OrbitError]) -> None:
    assert (kind.code, kind.status) == WIRE[kind]


def test_an_invalid_argument_starts_with_its_field_and_names_it_in_details() -> None:
    error = errors.InvalidArgument("must be 0 to 9", field="priority")
    assert error.message == "priority: must be 0 to 9"
    assert error.details == {"field": "priority"}
    assert error.retry_after_ms is None


def test_capacity_refusals_advise_one_second_unless_told_otherwise() -> None:
    assert errors.QueueFull("full").retry_after_ms == 1_000
    assert errors.QuotaExceeded("full").retry_after_ms == 1_000
    assert errors.RateLimited("window full", retry_after_ms=40).retry_after_ms == 40
