"""Backoff arithmetic in integer milliseconds (02-pulse "Tasks", failure case C28)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orbit.domain.limits import ATTEMPTS_DEFAULT, BACKOFF_MAX_DEFAULT_MS, JITTER_MIN
from orbit.domain.states import Backoff

_PARTS: Final = 1_000_000
_LEAST_PARTS: Final = int(JITTER_MIN * _PARTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """A task's frozen retry policy; `max_attempts` counts Starts, 1 to 100."""

    max_attempts: int = ATTEMPTS_DEFAULT
    backoff: Backoff = Backoff.NONE
    initial_ms: int = 0
    max_ms: int = BACKOFF_MAX_DEFAULT_MS


def base_delay_ms(policy: RetryPolicy, n: int) -> int:
    """Return the delay after the n-th attempt (n from 1) without jitter, 0 to `max_ms`."""
    match policy.backoff:
        case Backoff.NONE:
            return 0
        case Backoff.FIXED:
            delay = policy.initial_ms
        case Backoff.LINEAR:
            delay = policy.initial_ms * n
        case Backoff.EXPONENTIAL:
            # Capped before the shift, so that the number never outgrows the cap by more than one doubling.
            shift = n - 1
            is_over = policy.initial_ms > policy.max_ms >> shift
            delay = policy.max_ms if is_over else policy.initial_ms << shift
    return max(0, min(delay, policy.max_ms))


def delay_ms(policy: RetryPolicy, n: int, rnd: float) -> int:
    """Return the delay after the n-th attempt: the base times 0.8 to 1.0, chosen by `rnd` in [0, 1]."""
    share = min(max(rnd, 0.0), 1.0)
    parts = _LEAST_PARTS + int(share * (_PARTS - _LEAST_PARTS))
    return base_delay_ms(policy, n) * parts // _PARTS


def has_attempts_left(policy: RetryPolicy, attempts_used: int) -> bool:
    """Tell whether another Start may be granted after `attempts_used` of them."""
    return attempts_used < policy.max_attempts
