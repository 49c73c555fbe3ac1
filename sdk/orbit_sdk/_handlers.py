"""Registered handlers: what they declare, how their payload is decoded, how they are called."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import msgspec
import trio
from msgspec import Raw

from orbit_sdk._execution import Execution, Lease, PayloadDecoder
from orbit_sdk._json import decode_exact
from orbit_sdk._messages import Assign, HandlerDeclaration, parse_token
from orbit_sdk._outcomes import (
    OUTPUT_MAX_BYTES,
    Outcome,
    Unknown,
    interrupted,
    outcome_of_error,
    outcome_of_value,
)

EFFECTS: Final = frozenset({"PURE", "IDEMPOTENT", "FENCED", "ONCE"})
NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
VERSION_MAX_CHARS: Final = 64

ATTEMPT_TIMEOUT: Final = "ATTEMPT_TIMEOUT"
WORKER_SHUTDOWN: Final = "WORKER_SHUTDOWN"
LEASE_LAPSED: Final = "LEASE_LAPSED"
DEADLINE_TEXT: Final = "the handler ran until the attempt's deadline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A function and what the worker declares about it."""

    declaration: HandlerDeclaration
    function: Callable[..., Any]
    is_async: bool
    takes_payload: bool
    decode: PayloadDecoder

    @property
    def effect(self) -> str | None:
        """The declared effect class."""
        return self.declaration.effect


def build_handler(
    function: Callable[..., Any], name: str, *, version: str, effect: str | None = None, eager: bool = False
) -> Handler:
    """Check a registration and read the payload type from the function's annotations. Raises ValueError, TypeError."""
    if not NAME_PATTERN.fullmatch(name):
        raise ValueError(f"not a handler name: {name!r}")
    if not 1 <= len(version) <= VERSION_MAX_CHARS:
        raise ValueError("a handler version has 1 to 64 characters")
    if effect is not None and effect not in EFFECTS:
        raise ValueError(f"effect is one of {', '.join(sorted(EFFECTS))}")
    parameters = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD} and p.default is p.empty
    ]
    if len(parameters) not in {1, 2}:
        raise TypeError(f"handler {name} takes an Execution and, if it likes, the payload")
    return Handler(
        declaration=HandlerDeclaration(name, version, effect, eager),
        function=function,
        is_async=inspect.iscoroutinefunction(inspect.unwrap(function)),
        takes_payload=len(parameters) == 2,
        decode=_payload_decoder(_payload_type(function, parameters)),
    )


def _payload_type(function: Callable[..., Any], parameters: list[inspect.Parameter]) -> Any:
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError) as exc:
        if len(parameters) == 1 and "[" not in str(parameters[0].annotation):
            return Any
        raise TypeError(f"the payload type of {function!r} cannot be resolved: {exc}") from exc
    annotation = hints.get(parameters[-1].name, Any)
    if len(parameters) == 2:
        return annotation
    if typing.get_origin(annotation) is Execution:
        return typing.get_args(annotation)[0]
    return Any


def _payload_decoder(kind: Any) -> PayloadDecoder:
    if kind is Any or isinstance(kind, typing.TypeVar):
        return decode_exact
    if kind is Raw:
        return lambda payload: payload
    return msgspec.json.Decoder(kind, float_hook=Decimal).decode


def build_execution(
    assign: Assign, handler: Handler, *, lease: Lease, deadline: float | None
) -> Execution[Any]:
    """The execution of an assignment that may run."""
    return Execution(
        task=assign.task,
        attempt_id=assign.attempt_id,
        epoch=int(assign.epoch),
        concurrency_token=parse_token(assign.concurrency_token),
        lease=lease,
        deadline=deadline,
        decode=handler.decode,
        clock=trio.current_time if handler.is_async else clock_for_threads,
    )


def clock_for_threads() -> float:
    """The trio clock, also from a worker thread."""
    try:
        return trio.current_time()
    except RuntimeError:
        return trio.from_thread.run_sync(trio.current_time)


class Running:
    """One handler in flight, and the ways to end it early."""

    __slots__ = ("_abandoned", "_end", "_scope", "_thread_scope", "error", "execution", "handler")

    def __init__(self, handler: Handler, execution: Execution[Any]) -> None:
        self.handler = handler
        self.execution = execution
        # What the handler raised, for the log.
        self.error: BaseException | None = None
        self._scope = trio.CancelScope()
        self._thread_scope: trio.CancelScope | None = None
        self._end: Outcome | None = None
        self._abandoned = False
        if execution.deadline is not None:
            self._scope.deadline = execution.deadline

    def stop(self, code: str, message: str) -> None:
        """Cancel the handler; if that ends it, this is the outcome. A thread cannot be cancelled, only asked."""
        if self._end is None:
            self._end = interrupted(code, message, effect=self.handler.effect)
        self.execution.cancelled.set()
        self._scope.cancel()

    def abandon(self) -> None:
        """Stop waiting for a thread that did not heed `stop`: what it has done and will do is unknown."""
        self._abandoned = True
        if self._thread_scope is not None:
            self._thread_scope.cancel()

    async def run(
        self, *, limiter: trio.CapacityLimiter | None = None, output_limit: int = OUTPUT_MAX_BYTES
    ) -> Outcome:
        """Run the handler to its end. Whatever it raises becomes an outcome, only an outer cancellation goes on."""
        effect = self.handler.effect
        value: Any = None
        try:
            with self._scope:
                value = await self._call(limiter)
        except BaseException as exc:
            if _is_cancellation(exc):
                raise
            self.error = exc
            return outcome_of_error(exc, effect=effect)
        if self._abandoned:
            return outcome_of_error(Unknown("the thread still ran when the worker had to end"), effect=effect)
        if self._scope.cancelled_caught:
            return self._end or interrupted(ATTEMPT_TIMEOUT, DEADLINE_TEXT, effect=effect)
        return outcome_of_value(value, effect=effect, limit=output_limit)

    async def _call(self, limiter: trio.CapacityLimiter | None) -> Any:
        handler, execution = self.handler, self.execution
        arguments = (execution, execution.payload) if handler.takes_payload else (execution,)
        if handler.is_async:
            return await handler.function(*arguments)
        # A thread that runs on must not look finished: the outcome waits for its real end.
        with trio.CancelScope(shield=True) as self._thread_scope:
            async with trio.open_nursery() as nursery:
                if execution.deadline is not None:
                    nursery.start_soon(self._announce_deadline, execution.deadline)
                value = await trio.to_thread.run_sync(
                    handler.function, *arguments, limiter=limiter, abandon_on_cancel=True
                )
                nursery.cancel_scope.cancel()
            return value

    async def _announce_deadline(self, deadline: float) -> None:
        await trio.sleep_until(deadline)
        self.execution.cancelled.set()


def _is_cancellation(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(trio.Cancelled) is not None
    return isinstance(error, trio.Cancelled)
