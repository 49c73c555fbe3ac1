"""Opaque 128-bit ids: 16 bytes inside the server, 32 lower-case hex digits on the wire (02-pulse "Identity").

An id starts with its making's Unix milliseconds, so that rows made together lie together in the clustered index.
Ids are compared for equality only; their order decides nothing.
"""

from __future__ import annotations

import random
import re
import time
from typing import Final

from orbit.domain.errors import InvalidArgument

ID_BYTES: Final = 16
NO_ID: Final = bytes(ID_BYTES)

_TEXT = re.compile(r"[0-9a-f]{32}")


def new_id() -> bytes:
    """Return 16 fresh bytes: 48-bit Unix milliseconds, then 80 random bits."""
    # Not from the kernel: each read gives the interpreter away, and at thousands of ids a second waiting to get it
    # back costs more than everything else about a task. The generator is seeded by the kernel, anew after a fork.
    return (time.time_ns() // 1_000_000).to_bytes(6, "big") + random.getrandbits(80).to_bytes(10, "big")


def id_text(value: bytes) -> str:
    """Return the wire text of a 16-byte id."""
    return value.hex()


def parse_id(text: str, field: str) -> bytes:
    """Return the 16 bytes of exactly 32 lower-case hex digits; else InvalidArgument naming `field`."""
    if _TEXT.fullmatch(text) is None:
        raise InvalidArgument("must be 32 lower-case hexadecimal digits", field=field)
    return bytes.fromhex(text)
