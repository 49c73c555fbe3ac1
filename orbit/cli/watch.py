"""Starts the private database again when it ends although nobody stopped it: a crash, or a system short of memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from orbit.localdb.errors import LocalDatabaseError
from orbit.localdb.instance import Instance

LOOK_SECONDS: Final = 0.5
MAX_PAUSE_SECONDS: Final = 15.0


@contextmanager
def kept_running(instance: Instance, say: Callable[[str], None]) -> Iterator[None]:
    """Keep a started instance running for the block; its processes find it where it was."""
    stopping = threading.Event()
    thread = threading.Thread(
        target=_watch, args=(instance, say, stopping), name="database-watch", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        # A start in progress is waited for: whoever stops the instance next must be the only one who touches it.
        stopping.set()
        thread.join()


def _watch(instance: Instance, say: Callable[[str], None], stopping: threading.Event) -> None:
    address = instance.dsn()
    pause = LOOK_SECONDS
    while not stopping.wait(pause):
        if instance.is_running:
            pause = LOOK_SECONDS
            continue
        say("the database has ended; it is started again")
        try:
            instance.start()
        except (LocalDatabaseError, OSError) as error:
            pause = min(2 * pause, MAX_PAUSE_SECONDS)
            say(f"the database doesn't start, next try in {pause:g} s: {error}")
        else:
            if instance.dsn() != address:
                say("the database had to take another port: stop orbit up and start it again")
