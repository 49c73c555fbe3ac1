"""SIGTERM for every worker of a process: the first to watch installs the handler, the last puts the old one back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import trio


class _Watchers:
    """The callbacks of one trio run, and the signal handler that was there before."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], None]] = []
        self._previous: Any = None

    def add(self, callback: Callable[[], None]) -> None:
        if not self._callbacks:
            token = trio.lowlevel.current_trio_token()

            def handle(number: int, frame: FrameType | None) -> None:
                del number, frame
                token.run_sync_soon(self._call_all, idempotent=True)

            self._previous = signal.signal(signal.SIGTERM, handle)
        self._callbacks.append(callback)

    def remove(self, callback: Callable[[], None]) -> None:
        self._callbacks.remove(callback)
        if not self._callbacks:
            # A handler that Python did not install reads as None; the default is the closest to it.
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._previous is None else self._previous)

    def _call_all(self) -> None:
        for callback in list(self._callbacks):
            callback()


_WATCHERS: Final[trio.lowlevel.RunVar[_Watchers]] = trio.lowlevel.RunVar("orbit_sdk_sigterm_watchers")


@contextmanager
def on_terminate(callback: Callable[[], None]) -> Iterator[None]:
    """Call `callback` in the trio loop on every SIGTERM meanwhile. Outside the main thread it does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        watchers = _WATCHERS.get()
    except LookupError:
        watchers = _Watchers()
        _WATCHERS.set(watchers)
    watchers.add(callback)
    try:
        yield
    finally:
        watchers.remove(callback)
