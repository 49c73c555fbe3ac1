"""Backoff: never negative, never above its cap, exact where it isn't capped (failure case C28)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbit.domain.limits import BACKOFF_MAX_MS
from orbit.domain.retry import RetryPolicy, base_delay_ms, delay_ms, has_attempts_left
from orbit.domain.states import Backoff

policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 100),
    backoff=st.sampled_from(Backoff),
    initial_ms=st.integers(0, BACKOFF_MAX_MS),
    max_ms=st.integers(0, BACKOFF_MAX_MS),
)


@given(policies, st.integers(1, 100), st.floats(0, 1))
def test_every_delay_lies_between_zero_and_its_cap(policy: RetryPolicy, n: int, rnd: float) -> None:
    base = base_delay_ms(policy, n)
    delay = delay_ms(policy, n, rnd)
    assert 0 <= delay <= base <= policy.max_ms
    assert delay >= base * 8 // 10


@given(policies, st.integers(1, 100))
def test_the_base_is_the_plain_formula_capped(policy: RetryPolicy, n: int) -> None:
    formula = {
        Backoff.NONE: 0,
        Backoff.FIXED: policy.initial_ms,
        Backoff.LINEAR: policy.initial_ms * n,
        Backoff.EXPONENTIAL: policy.initial_ms * 2 ** (n - 1),
    }
    assert base_delay_ms(policy, n) == min(formula[policy.backoff], policy.max_ms)


@given(policies, st.integers(1, 99))
def test_waiting_never_gets_shorter(policy: RetryPolicy, n: int) -> None:
    assert base_delay_ms(policy, n) <= base_delay_ms(policy, n + 1)


def test_jitter_spans_eight_tenths_to_the_whole() -> None:
    policy = RetryPolicy(max_attempts=3, backoff=Backoff.FIXED, initial_ms=1_000)
    assert delay_ms(policy, 1, 0.0) == 800
    assert delay_ms(policy, 1, 1.0) == 1_000
    assert delay_ms(policy, 1, 0.5) == 900


def test_the_budget_counts_starts() -> None:
    policy = RetryPolicy(max_attempts=2)
    assert has_attempts_left(policy, 1)
    assert not has_attempts_left(policy, 2)


@pytest.mark.parametrize("n", [1, 64, 65, 100])
def test_the_largest_policy_stays_at_its_cap(n: int) -> None:
    policy = RetryPolicy(
        max_attempts=100, backoff=Backoff.EXPONENTIAL, initial_ms=BACKOFF_MAX_MS, max_ms=BACKOFF_MAX_MS
    )
    assert delay_ms(policy, n, 1.0) == BACKOFF_MAX_MS
