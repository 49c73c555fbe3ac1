"""SIGTERM and SIGINT for every worker of a process: the first watcher installs handlers, the last restores them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import trio

WATCHED: Final = (signal.SIGTERM, signal.SIGINT)

Callback = Callable[[int], None]


class _Watchers:
    """The callbacks of one trio run, and the signal handlers that were there before."""

    def __init__(self) -> None:
        self._callbacks: list[Callback] = []
        self._previous: dict[int, Any] = {}

    def add(self, callback: Callback) -> None:
        """Watch; the first one installs the handlers."""
        if not self._callbacks:
            token = trio.lowlevel.current_trio_token()

            def handle(number: int, frame: FrameType | None) -> None:
                del frame
                token.run_sync_soon(self._call_all, number)

            self._previous = {number: signal.signal(number, handle) for number in WATCHED}
        self._callbacks.append(callback)

    def remove(self, callback: Callback) -> None:
        """Watch no longer; the last one puts the old handlers back."""
        self._callbacks.remove(callback)
        if self._callbacks:
            return
        for number, previous in self._previous.items():
            # A handler that Python did not install reads as None; the default is the closest to it.
            signal.signal(number, signal.SIG_DFL if previous is None else previous)

    def _call_all(self, number: int) -> None:
        for callback in list(self._callbacks):
            callback(number)


# Scoped to one trio run, because the callbacks belong to its tasks.
_WATCHERS: Final[trio.lowlevel.RunVar[_Watchers]] = trio.lowlevel.RunVar("orbit_sdk_signal_watchers")


@contextmanager
def on_signals(callback: Callback) -> Iterator[None]:
    """Call `callback` in the trio loop for every SIGTERM and SIGINT meanwhile. Outside the main thread: nothing."""
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
