"""Orbit's SDK: an HTTP client and a worker, trio-native and typed."""

from __future__ import annotations

from msgspec import Raw

from orbit_sdk._client import Client, load_credentials
from orbit_sdk._errors import (
    APIError,
    ConnectionLost,
    OrbitError,
    OutcomeUnknown,
    ProtocolError,
    SessionRefused,
    TransportError,
)
from orbit_sdk._execution import Execution
from orbit_sdk._http import Request, Response, Transport
from orbit_sdk._json import decode_exact, encode
from orbit_sdk._messages import HandlerDeclaration, TaskInfo
from orbit_sdk._models import (
    Attempt,
    AttemptPage,
    BatchItem,
    BatchItemResult,
    ConfigureQueue,
    CreateQueue,
    Dispatcher,
    Failure,
    LateEvidence,
    Queue,
    QueuePage,
    QueueResult,
    Refusal,
    RetryPolicy,
    SubmitTask,
    Task,
    TaskPage,
    TaskResult,
    TaskSummary,
)
from orbit_sdk._outcomes import Fail, Outcome, Retry, Unknown
from orbit_sdk._raw_session import Session, open_session
from orbit_sdk._repeat import repeat
from orbit_sdk._tasks import TaskFilter
from orbit_sdk._worker import Worker

__all__ = [
    "APIError",
    "Attempt",
    "AttemptPage",
    "BatchItem",
    "BatchItemResult",
    "Client",
    "ConfigureQueue",
    "ConnectionLost",
    "CreateQueue",
    "Dispatcher",
    "Execution",
    "Fail",
    "Failure",
    "HandlerDeclaration",
    "LateEvidence",
    "OrbitError",
    "Outcome",
    "OutcomeUnknown",
    "ProtocolError",
    "Queue",
    "QueuePage",
    "QueueResult",
    "Raw",
    "Refusal",
    "Request",
    "Response",
    "Retry",
    "RetryPolicy",
    "Session",
    "SessionRefused",
    "SubmitTask",
    "Task",
    "TaskFilter",
    "TaskInfo",
    "TaskPage",
    "TaskResult",
    "TaskSummary",
    "Transport",
    "TransportError",
    "Unknown",
    "Worker",
    "decode_exact",
    "encode",
    "load_credentials",
    "open_session",
    "repeat",
]
