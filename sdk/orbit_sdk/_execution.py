"""What a handler sees of the attempt that it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
import trio
from msgspec import Raw

from orbit_sdk._json import decode_exact
from orbit_sdk._messages import TaskInfo
from orbit_sdk._outcomes import Fail

P = TypeVar("P")
PayloadDecoder = Callable[[Raw], Any]


class Lease:
    """The end of a lease on the local clock, moved by every renewal."""

    __slots__ = ("until",)

    def __init__(self, until: float) -> None:
        self.until = until


class Execution(Generic[P]):
    """One attempt while its handler runs.

    `cancelled` is set when somebody asks for the end, when the worker's grace period is over, or at the attempt's
    deadline; an async handler is cancelled only at the deadline, when the attempt is lost, and after the grace period.
    """

    __slots__ = (
        "_clock",
        "_decode",
        "_lease",
        "_payload",
        "attempt_id",
        "cancelled",
        "concurrency_token",
        "deadline",
        "epoch",
        "task",
    )

    def __init__(  # noqa: PLR0913 - made in one place, read everywhere
        self,
        *,
        task: TaskInfo,
        attempt_id: str,
        epoch: int,
        concurrency_token: int | None,
        lease: Lease,
        deadline: float | None,
        decode: PayloadDecoder = decode_exact,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self.task = task
        self.attempt_id = attempt_id
        self.epoch = epoch
        self.concurrency_token = concurrency_token
        self.cancelled = trio.Event()
        self._lease = lease
        self.deadline = deadline
        self._decode = decode
        self._clock = clock
        self._payload: Any = msgspec.UNSET

    @property
    def payload(self) -> P:
        """The payload in the handler's declared type, without one as plain values with exact numbers.

        Raises Fail INVALID_PAYLOAD where it is not of that type: no repetition could change that.
        """
        if self._payload is msgspec.UNSET:
            try:
                self._payload = self._decode(self.task.payload)
            except (msgspec.DecodeError, RecursionError, ValueError) as exc:
                raise Fail("INVALID_PAYLOAD", f"the payload is not what the handler declares: {exc}") from exc
        payload: P = self._payload
        return payload

    @property
    def lease_lapsed(self) -> bool:
        """Whether the lease has ended by the local clock; only the server decides whether the attempt is lost."""
        return self._clock() >= self._lease.until

    def remaining(self) -> float:
        """Seconds until the attempt's deadline, never negative; `inf` where it has none."""
        if self.deadline is None:
            return float("inf")
        return max(0.0, self.deadline - self._clock())
