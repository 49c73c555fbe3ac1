"""What waits to be sent to one worker: bounded, counted in bytes, taken frame by frame. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from orbit.domain import limits
from orbit.scheduler.messages import Sent

# What a message takes on the wire beside its payload, generously: it decides only where frames are split.
MESSAGE_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class Ending:
    """Why the connection is to end: a WebSocket close code and a short reason."""

    code: int
    reason: str


class Outbox:
    """Messages for one worker in order. `wake` is called when there is something for the sender to do.

    More than 1 MiB: `is_full`, no new assignments. More than 8 MiB: the connection ends.
    """

    __slots__ = ("_messages", "_taken", "_wake", "bytes", "ending", "on_room")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._messages: deque[tuple[Sent, int]] = deque()
        self._wake = wake
        self._taken = 0
        self.bytes = 0
        self.ending: Ending | None = None
        # Called when a full outbox has room again.
        self.on_room: Callable[[], None] = lambda: None

    @property
    def is_full(self) -> bool:
        return self.bytes > limits.SEND_QUEUE_SOFT_BYTES

    def put(self, message: Sent, size: int = MESSAGE_BYTES) -> None:
        """Queue a message of about `size` bytes; dropped when the connection is ending at once."""
        if self.ending is not None and not self.is_flushing:
            return
        self.bytes += size
        self._messages.append((message, size))
        if self.bytes > limits.SEND_QUEUE_HARD_BYTES:
            self.end(1013, "send queue overflow")
        self._wake()

    def end(self, code: int, reason: str) -> None:
        """End the connection: after what is queued for a shutdown (1001), else at once. The first ending counts."""
        if self.ending is None:
            self.ending = Ending(code, reason)
            if not self.is_flushing:
                self._messages.clear()
            self._wake()

    @property
    def is_flushing(self) -> bool:
        """Tell whether an ending connection still sends what is queued."""
        return self.ending is not None and self.ending.code in (1000, 1001)

    def take(self) -> list[Sent]:
        """Return the messages of the next frame, at most 64 and 768 KiB; empty when nothing waits."""
        waiting = self._messages
        frame: list[Sent] = []
        size = 0
        while waiting and len(frame) < limits.FRAME_MAX_MESSAGES:
            grown = size + waiting[0][1]
            if frame and grown > limits.FRAME_SPLIT_BYTES:
                break
            frame.append(waiting.popleft()[0])
            size = grown
        self._taken = size
        return frame

    def sent(self) -> None:
        """Note that the frame taken last has left."""
        was_full = self.is_full
        self.bytes -= self._taken
        self._taken = 0
        if was_full and not self.is_full:
            self.on_room()
