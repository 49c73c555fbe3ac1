"""Handlers as functions: payload types, exact numbers, outcomes, the test environment."""

from __future__ import annotations

import time
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from orbit_sdk import Execution, Fail, Outcome, Raw, Retry, Unknown, decode_exact
from orbit_sdk._outcomes import ERROR_MESSAGE_MAX_BYTES, clean_code, clean_message
from orbit_sdk.testing import run_handler


class Order(msgspec.Struct):
    """A payload type."""

    number: int
    price: Decimal


@dataclass
class Point:
    """Another."""

    x: int


async def by_parameter(e: Execution[Any], order: Order) -> list[Any]:
    return [order.number, order.price]


async def by_generic(e: Execution[Order]) -> list[Any]:
    return [e.payload.number, e.payload.price]


async def as_dataclass(e: Execution[Any], point: Point) -> int:
    return point.x


async def as_mapping(e: Execution[Any], values: dict[str, Any]) -> Any:
    return values


async def untyped(e):  # type: ignore[no-untyped-def]
    return e.payload


async def as_bytes(e: Execution[Raw]) -> Raw:
    return e.payload


EXACT = Raw(b'{"number":123456789012345678901234567890,"price":1.10}')


async def test_payloads_come_in_the_declared_type_with_exact_numbers() -> None:
    """As a second parameter, a type argument, a dataclass, a mapping, plain values or raw bytes."""
    for handler in (by_parameter, by_generic):
        outcome = await run_handler(handler, payload=EXACT)
        assert outcome == Outcome("SUCCEEDED", outcome.output)
        assert bytes(outcome.output or b"") == b'[123456789012345678901234567890,"1.10"]'.replace(b'"', b"")
    assert bytes((await run_handler(as_dataclass, payload={"x": 2**60})).output or b"") == str(2**60).encode()
    numbers = Raw(b'{"a":1.10,"b":1e-400,"c":18446744073709551616}')
    for either in (as_mapping, untyped):
        outcome = await run_handler(either, payload=numbers)
        assert decode_exact(outcome.output or b"") == decode_exact(numbers)
        assert b"1.10" in bytes(outcome.output or b"")
    assert bytes((await run_handler(as_bytes, payload=numbers)).output or b"") == bytes(numbers)


async def test_a_payload_of_another_type_fails_for_good() -> None:
    """Whether it is read as a parameter or on demand."""
    for handler in (by_parameter, by_generic):
        outcome = await run_handler(handler, payload={"number": "x"})
        assert (outcome.kind, outcome.code) == ("FAILED", "INVALID_PAYLOAD")


async def test_cancel_deadline_and_lease(autojump_clock: trio.testing.MockClock) -> None:
    """The three ways in which time touches a handler."""

    async def watch(e: Execution[Any]) -> list[Any]:
        before = (e.lease_lapsed, e.cancelled.is_set(), round(e.remaining()))
        await e.cancelled.wait()
        await trio.sleep(3)
        return [before, (e.lease_lapsed, e.cancelled.is_set(), round(e.remaining()))]

    outcome = await run_handler(watch, cancel_after=1, deadline=10, lease=2)
    assert decode_exact(outcome.output or b"") == [[False, False, 10], [True, True, 6]]
    outcome = await run_handler(watch, deadline=5)
    assert (outcome.kind, outcome.code) == ("RETRY", "ATTEMPT_TIMEOUT")
    outcome = await run_handler(watch, deadline=5, effect="ONCE")
    assert (outcome.kind, outcome.code) == ("UNKNOWN", "ATTEMPT_TIMEOUT")


async def test_a_thread_sees_the_deadline_and_its_value_counts() -> None:
    """It cannot be cancelled; `cancelled` is set, and what it returns is what happened."""

    def slow(e: Execution[Any]) -> bool:
        while not e.cancelled.is_set():
            time.sleep(0.001)
        return e.remaining() == 0

    outcome = await run_handler(slow, deadline=0.05)
    assert (outcome.kind, bytes(outcome.output or b"")) == ("SUCCEEDED", b"true")


async def test_keys_and_tokens() -> None:
    """A token comes with a key, exact and never zero."""

    async def token(e: Execution[Any]) -> list[Any]:
        return [e.concurrency_token, e.task.concurrency_key]

    outcome = await run_handler(token, concurrency_token=2**64 - 1)
    assert decode_exact(outcome.output or b"") == [2**64 - 1, "test-key"]
    assert decode_exact((await run_handler(token)).output or b"") == [None, None]
    with pytest.raises(ValueError, match="uint64"):
        await run_handler(token, concurrency_token=0)


async def test_a_group_counts_as_its_most_careful_member() -> None:
    """Unknown before an unforeseen error before Fail before Retry."""
    members: list[Exception] = [Retry("r"), Fail("F", "f"), ValueError("v"), Unknown("u")]
    expected = ["RETRY", "FAILED", "RETRY", "UNKNOWN"]
    codes = ["RETRY", "F", "ValueError", "EFFECT_UNKNOWN"]

    for count in range(1, 5):

        async def raise_group(e: Execution[Any], count: int = count) -> None:
            raise ExceptionGroup("several", [ExceptionGroup("inner", members[:count])])

        outcome = await run_handler(raise_group)
        assert (outcome.kind, outcome.code) == (expected[count - 1], codes[count - 1])


async def test_a_cancelled_test_cancels_the_handler() -> None:
    """An outer cancellation is not an outcome."""

    async def endless(e: Execution[Any]) -> None:
        await trio.sleep_forever()

    with trio.move_on_after(0.01) as scope:
        await run_handler(endless)
    assert scope.cancelled_caught


@given(st.text(st.characters(), max_size=6000))
def test_any_message_can_be_stored(text: str) -> None:
    """Valid UTF-8 within 4 KiB, no control characters or surrogates, the readable beginning kept."""
    cleaned = clean_message(text)
    assert len(cleaned.encode()) <= ERROR_MESSAGE_MAX_BYTES
    assert not any(c < " " and c not in "\n\t" for c in cleaned)
    assert text.isprintable() is False or text.startswith(cleaned)


@given(st.text(st.characters(), max_size=200))
def test_any_code_can_be_stored(text: str) -> None:
    """1 to 64 visible ASCII characters."""
    cleaned = clean_code(text)
    assert 1 <= len(cleaned) <= 64
    assert all("!" <= c <= "~" for c in cleaned)
