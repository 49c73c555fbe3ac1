"""Every bound of the specification with its unit; told to clients in `welcome` and `/openapi.json`.

Names end in their unit: `_BYTES`, `_CHARS` (Unicode code points), `_MS`, or a plain count.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

UINT64_MAX: Final = 2**64 - 1

# --- HTTP bodies and strict JSON
BODY_MAX_BYTES: Final = 512 * KIB
PAYLOAD_MAX_BYTES: Final = 256 * KIB
OUTPUT_MAX_BYTES: Final = 256 * KIB
JSON_MAX_DEPTH: Final = 64
PAGE_DEFAULT: Final = 20
PAGE_MAX: Final = 100
BATCH_MAX_ITEMS: Final = 32
CURSOR_MAX_CHARS: Final = 1_024

# --- names, keys and texts
QUEUE_NAME_MAX_CHARS: Final = 128
HANDLER_MAX_CHARS: Final = 128
VERSION_MAX_CHARS: Final = 64
NAMESPACE_NAME_MAX_CHARS: Final = 128
APPLICATION_NAME_MAX_CHARS: Final = 128
ENVIRONMENT_MAX_CHARS: Final = 64
BUSINESS_KEY_MAX_CHARS: Final = 191
CONCURRENCY_KEY_MAX_CHARS: Final = 191
IDEMPOTENCY_KEY_MAX_BYTES: Final = 191
REASON_MAX_CHARS: Final = 1_024
EVIDENCE_MAX_BYTES: Final = 16 * KIB
ERROR_CODE_MAX_CHARS: Final = 64
ERROR_MESSAGE_MAX_BYTES: Final = 4 * KIB
WORKER_NAME_MAX_CHARS: Final = 128
SDK_NAME_MAX_CHARS: Final = 64
LATE_EVIDENCE_MAX_ROWS: Final = 8
RECEIPT_BODY_MAX_BYTES: Final = KIB

# --- task policies
PRIORITY_MIN: Final = 0
PRIORITY_MAX: Final = 9
PRIORITY_STEP_MS: Final = 30 * SECOND_MS
DELAY_MAX_MS: Final = 30 * DAY_MS
AVAILABLE_AHEAD_MAX_MS: Final = 366 * DAY_MS
START_DEADLINE_AHEAD_MAX_MS: Final = 732 * DAY_MS
TIMEOUT_MIN_MS: Final = 1
TIMEOUT_MAX_MS: Final = 732 * DAY_MS
ATTEMPTS_MIN: Final = 1
ATTEMPTS_DEFAULT: Final = 1
ATTEMPTS_MAX: Final = 100
BACKOFF_MAX_MS: Final = 30 * DAY_MS
BACKOFF_MAX_DEFAULT_MS: Final = HOUR_MS
RETRY_AFTER_MAX_MS: Final = DAY_MS
JITTER_MIN: Final = 0.8
DECLINE_PAUSE_MS: Final = SECOND_MS

# --- queues and application quotas
QUEUE_CONCURRENCY_MAX: Final = 100_000
QUEUE_RATE_MAX: Final = 1_000_000
QUEUE_UNFINISHED_MAX: Final = 1_000_000
QUEUE_UNFINISHED_DEFAULT: Final = 100_000
QUOTA_UNFINISHED_DEFAULT: Final = 10_000_000
QUOTA_ACTIVE_DEFAULT: Final = 100_000
QUOTA_MAX: Final = 1_000_000_000
RATE_WINDOW_MS: Final = SECOND_MS
REFUSED_RETRY_AFTER_MS: Final = SECOND_MS

# --- worker protocol
FRAME_ID_MAX_CHARS: Final = 64
FRAME_MAX_BYTES: Final = MIB
FRAME_SPLIT_BYTES: Final = 768 * KIB
FRAME_MAX_MESSAGES: Final = 64
WORKER_QUEUES_MAX: Final = 32
WORKER_HANDLERS_MAX: Final = 64
WORKER_PRODUCT_MAX: Final = 512
CAPACITY_MIN: Final = 1
CAPACITY_MAX: Final = 1_000
LEASE_DEFAULT_MS: Final = 30 * SECOND_MS
# The shortest lease that renewals keep alive over a database 200 ms away.
LEASE_MIN_MS: Final = 2 * SECOND_MS
LEASE_MAX_MS: Final = 10 * MINUTE_MS
RENEWALS_PER_LEASE: Final = 3
ATTEMPT_DEADLINE_GRACE_MS: Final = 5 * SECOND_MS
SEND_QUEUE_SOFT_BYTES: Final = MIB
SEND_QUEUE_HARD_BYTES: Final = 8 * MIB
SEND_PROGRESS_MS: Final = 10 * SECOND_MS

# --- group commit and dispatch
GROUP_SUBMITS_MAX: Final = 128
GROUP_OTHERS_MAX: Final = 64
GROUP_BODIES_MAX_BYTES: Final = 4 * MIB
PROMOTE_MAX: Final = 256
UNKNOWN_COMMIT_RESOLVE_MS: Final = 10 * SECOND_MS
DISPATCHER_HEARTBEAT_MS: Final = 5 * SECOND_MS
DISPATCHER_LIVE_MS: Final = 15 * SECOND_MS
RECOVERY_BEAT_MS: Final = SECOND_MS
RECOVERY_GRACE_EXTRA_MS: Final = 5 * SECOND_MS
LANE_IDLE_MS: Final = 10 * MINUTE_MS

# --- retention
RETENTION_DEFAULT_DAYS: Final = 30
RETENTION_MAX_DAYS: Final = 3_650

# --- credentials
TOKEN_SECRET_BYTES: Final = 32


def told() -> dict[str, int]:
    """Return the limits that a client must know, by wire name (in `welcome` and `/openapi.json`)."""
    return {
        "body_bytes": BODY_MAX_BYTES,
        "payload_bytes": PAYLOAD_MAX_BYTES,
        "output_bytes": OUTPUT_MAX_BYTES,
        "json_depth": JSON_MAX_DEPTH,
        "handler_chars": HANDLER_MAX_CHARS,
        "version_chars": VERSION_MAX_CHARS,
        "business_key_chars": BUSINESS_KEY_MAX_CHARS,
        "concurrency_key_chars": CONCURRENCY_KEY_MAX_CHARS,
        "idempotency_key_bytes": IDEMPOTENCY_KEY_MAX_BYTES,
        "reason_chars": REASON_MAX_CHARS,
        "evidence_bytes": EVIDENCE_MAX_BYTES,
        "error_code_chars": ERROR_CODE_MAX_CHARS,
        "error_message_bytes": ERROR_MESSAGE_MAX_BYTES,
        "frame_id_chars": FRAME_ID_MAX_CHARS,
        "frame_bytes": FRAME_MAX_BYTES,
        "frame_split_bytes": FRAME_SPLIT_BYTES,
        "frame_messages": FRAME_MAX_MESSAGES,
        "worker_queues": WORKER_QUEUES_MAX,
        "worker_handlers": WORKER_HANDLERS_MAX,
        "worker_product": WORKER_PRODUCT_MAX,
        "capacity": CAPACITY_MAX,
        "batch_items": BATCH_MAX_ITEMS,
        "page_items": PAGE_MAX,
        "delay_ms": DELAY_MAX_MS,
        "retry_after_ms": RETRY_AFTER_MAX_MS,
        "max_attempts": ATTEMPTS_MAX,
    }
