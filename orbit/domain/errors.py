"""Every failure that Orbit names, with its stable wire code and HTTP status (02-pulse "HTTP conventions").

OrbitError(message, details, retry_after_ms)
├─ RequestError       repeat only after changing the request
│   ├─ InvalidArgument 400 · Unauthenticated 401 · PermissionDenied 403 · NotFound 404
│   ├─ MethodNotAllowed 405 · RequestTimeout 408 · PayloadTooLarge 413
│   └─ Conflict 409   re-read, then decide anew: IdempotencyConflict · StateConflict
├─ CapacityError 429  repeat later under the same key: QueueFull · QuotaExceeded · RateLimited (frames only)
├─ StartRefused       a worker may not run the attempt: QueuePaused · CancelRequested · DeadlineExceeded
├─ OwnershipError     stop, keep the evidence: StaleAttempt
├─ StoreError         original identity only, never a new one
│   └─ Unavailable 503 · OutcomeUnknown 503
└─ InvariantViolation 500  our bug: roll back, log, alert
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from orbit.domain.limits import REFUSED_RETRY_AFTER_MS, SECOND_MS


class OrbitError(Exception):
    """A named failure. `message` and `details` reach the caller; they hold no secret and no payload.

    `retry_after_ms` is a hint in milliseconds (None: no advice); HTTP rounds it up to whole seconds.
    """

    code: ClassVar[str] = "INTERNAL"
    status: ClassVar[int] = 500
    default_retry_after_ms: ClassVar[int | None] = None

    def __init__(
        self,
        message: str,
        *,
        details: Mapping[str, str] | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, str] | None = dict(details) if details else None
        self.retry_after_ms = self.default_retry_after_ms if retry_after_ms is None else retry_after_ms

    @property
    def retry_after_seconds(self) -> int:
        """Return the advice as `Retry-After` gives it: whole seconds, rounded up, at least 1."""
        return max(1, -(-(self.retry_after_ms or 0) // SECOND_MS))

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class RequestError(OrbitError):
    """The request as sent can never succeed."""

    code = "INVALID_ARGUMENT"
    status = 400


class InvalidArgument(RequestError):
    """A field breaks its rule. `field` is a dotted path such as `retry.max_attempts`; `body` is the whole body."""

    code = "INVALID_ARGUMENT"
    status = 400

    def __init__(self, problem: str, *, field: str) -> None:
        super().__init__(f"{field}: {problem}", details={"field": field})
        self.field = field


class Unauthenticated(RequestError):
    """No credential, or one that isn't valid now."""

    code = "UNAUTHENTICATED"
    status = 401


class PermissionDenied(RequestError):
    """The credential lacks the action."""

    code = "PERMISSION_DENIED"
    status = 403


class NotFound(RequestError):
    """The resource doesn't exist inside the caller's namespace and queue scope."""

    code = "NOT_FOUND"
    status = 404


class MethodNotAllowed(RequestError):
    """The path exists, but not for this HTTP method."""

    code = "METHOD_NOT_ALLOWED"
    status = 405


class RequestTimeout(RequestError):
    """The request's bytes didn't arrive in time."""

    code = "REQUEST_TIMEOUT"
    status = 408


class PayloadTooLarge(RequestError):
    """A body or value is larger than its limit in bytes."""

    code = "PAYLOAD_TOO_LARGE"
    status = 413


class Conflict(RequestError):
    """The request contradicts what is stored."""

    code = "STATE_CONFLICT"
    status = 409


class IdempotencyConflict(Conflict):
    """The identity was accepted before with other content."""

    code = "IDEMPOTENCY_CONFLICT"
    status = 409


class StateConflict(Conflict):
    """The resource's state or revision doesn't allow the command."""

    code = "STATE_CONFLICT"
    status = 409


class CapacityError(OrbitError):
    """A limit is reached now; the same identity may succeed later."""

    code = "QUOTA_EXCEEDED"
    status = 429
    default_retry_after_ms = REFUSED_RETRY_AFTER_MS


class QueueFull(CapacityError):
    """The queue holds `max_unfinished_tasks` tasks."""

    code = "QUEUE_FULL"
    status = 429


class QuotaExceeded(CapacityError):
    """The application's quota is used up."""

    code = "QUOTA_EXCEEDED"
    status = 429


class RateLimited(CapacityError):
    """The queue's one-second Start window is full (worker frames); repeat the same message id."""

    code = "RATE_LIMITED"
    status = 429


class StartRefused(OrbitError):
    """A worker's Start isn't granted and the handler must not run (worker frames)."""

    code = "STATE_CONFLICT"
    status = 409


class QueuePaused(StartRefused):
    """The queue is paused."""

    code = "QUEUE_PAUSED"
    status = 409


class CancelRequested(StartRefused):
    """The task was cancelled."""

    code = "CANCELLED"
    status = 409


class DeadlineExceeded(StartRefused):
    """The start deadline or the total deadline has passed."""

    code = "DEADLINE_EXCEEDED"
    status = 409


class OwnershipError(OrbitError):
    """The sender no longer owns what it speaks for."""

    code = "STALE_ATTEMPT"
    status = 409


class StaleAttempt(OwnershipError):
    """Epoch, session generation or lease isn't the live one."""

    code = "STALE_ATTEMPT"
    status = 409


class StoreError(OrbitError):
    """The database didn't do it, or didn't say whether it did."""

    code = "UNAVAILABLE"
    status = 503
    default_retry_after_ms = REFUSED_RETRY_AFTER_MS


class Unavailable(StoreError):
    """The database can't serve the command now; nothing was done."""

    code = "UNAVAILABLE"
    status = 503


class OutcomeUnknown(StoreError):
    """The COMMIT's answer was lost: only a repeat under the original identity can tell."""

    code = "UNAVAILABLE"
    status = 503


class InvariantViolation(OrbitError):
    """A promise of Orbit's own doesn't hold. The message is for the log; callers get only INTERNAL."""

    code = "INTERNAL"
    status = 500
