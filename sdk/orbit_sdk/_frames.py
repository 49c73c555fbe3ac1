"""Frames of the worker protocol: one message, or an array of them within the protocol's bounds."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from orbit_sdk._errors import ProtocolError
from orbit_sdk._messages import ClientMessage, Hello, Renew, Result, Resume, ServerMessage

FRAME_MAX_MESSAGES: Final = 64
FRAME_SPLIT_BYTES: Final = 768 * 1024

_DECODER: Final = msgspec.json.Decoder(list[ServerMessage] | ServerMessage)
_ENCODER: Final = msgspec.json.Encoder()


def decode_frame(frame: str | bytes) -> Sequence[ServerMessage]:
    """The messages of one frame. Raises ProtocolError for an unknown type or a malformed message."""
    try:
        decoded = _DECODER.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ProtocolError(f"the dispatcher sent a message that this SDK cannot read: {exc}") from exc
    return decoded if isinstance(decoded, list) else (decoded,)


def encode_frame(waiting: deque[ClientMessage]) -> str:
    """Take one frame's worth from the front: at most 64 messages, about 768 KiB (one message always fits)."""
    batch = [waiting.popleft()]
    size = _weight(batch[0])
    while waiting and len(batch) < FRAME_MAX_MESSAGES:
        size += _weight(waiting[0])
        if size > FRAME_SPLIT_BYTES:
            break
        batch.append(waiting.popleft())
    return _encode(batch)


def _encode(batch: list[ClientMessage]) -> str:
    return _ENCODER.encode(batch[0] if len(batch) == 1 else batch).decode()


def _weight(message: ClientMessage) -> int:
    """An upper bound of the encoded size, without encoding."""
    if isinstance(message, Result):
        weight = 384
        if message.output is not None:
            weight += len(bytes(message.output))
        if message.error is not None:
            # A control character is escaped to six bytes, any other character takes at most four.
            weight += 6 * len(message.error.message)
        return weight
    if isinstance(message, Renew | Resume):
        return 128 + 128 * len(message.attempts)
    return 256 if not isinstance(message, Hello) else 256 * (2 + len(message.queues) + len(message.handlers))
