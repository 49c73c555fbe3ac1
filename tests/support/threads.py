"""Many at once: start threads behind a barrier, and collect what they return."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from orbit.store.dsn import Dsn
from orbit.store.session import Session
from tests.support.pulse import Pulse
from tests.support.tenants import Tenant

Result = TypeVar("Result")


def together(actions: Sequence[Callable[[], Result]], *, within: float = 30.0) -> list[Result]:
    """Run each action on a thread of its own, all let go at once; return their results in order.

    Raises what the first failed action raised.
    """
    barrier = threading.Barrier(len(actions))
    results: dict[int, Result] = {}
    errors: list[BaseException] = []

    def run(index: int) -> None:
        try:
            barrier.wait(within)
            results[index] = actions[index]()
        except BaseException as error:  # noqa: BLE001 - raised in the test's thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(within)
    assert not any(thread.is_alive() for thread in threads), f"still running after {within:g} s"
    if errors:
        raise errors[0]
    return [results[index] for index in range(len(actions))]


class Pulses:
    """Drivers of one tenant, each with a connection of its own that is already open. Use as a context manager."""

    def __init__(self, dsn: Dsn, tenant: Tenant, count: int) -> None:
        self._sessions = [Session(dsn) for _ in range(count)]
        self._tenant = tenant

    def __enter__(self) -> list[Pulse]:
        for session in self._sessions:
            session.run(lambda tx: tx.now)
        return [Pulse(session, self._tenant) for session in self._sessions]

    def __exit__(self, *_: object) -> None:
        for session in self._sessions:
            session.close()
