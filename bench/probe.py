"""What a worker process tells about its handlers' starts, readable from outside while it runs."""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

# Handler starts, and the first and the last of them on the machine's monotonic clock.
_RECORD: Final = struct.Struct("<Qdd")

now = time.monotonic


class Starts(NamedTuple):
    """How many handlers have started, and when the first and the last one did."""

    total: int
    first: float
    last: float


class Probe:
    """The writing side: one per worker process, used by one thread."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_RECORD.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _RECORD.size)
        self._delays = os.open(path.with_suffix(".delays"), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self._count = 0
        self._first = 0.0

    def start(self, submitted_at: float) -> None:
        """Note that a handler starts now; `submitted_at` 0 means that nobody asks for the delay."""
        at = now()
        self._first = self._first or at
        self._count += 1
        _RECORD.pack_into(self._map, 0, self._count, self._first, at)
        if submitted_at:
            os.write(self._delays, f"{at - submitted_at:.6f}\n".encode())


def read_starts(paths: Iterable[Path]) -> Starts:
    """Return the starts of several workers together."""
    count, first, last = 0, float("inf"), 0.0
    for path in paths:
        number, began, latest = _RECORD.unpack(path.read_bytes())
        if number and began:  # the count may be seen before the time
            count, first, last = count + number, min(first, began), max(last, latest)
    return Starts(count, first, last)


def read_delays(path: Path) -> list[float]:
    """Return the seconds from submit to start, in order of the starts."""
    return list(map(float, path.with_suffix(".delays").read_text(encoding="ascii").split()))
