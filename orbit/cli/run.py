"""Runs the Procfile's processes in a prepared home until told to stop, and does something meanwhile."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager

import trio

from orbit.cli.local import Local, NotReady, Say, wait_ready
from orbit.cli.supervisor import Supervisor


@contextmanager
def signals_raise() -> Iterator[None]:
    """Let SIGTERM and SIGINT raise `KeyboardInterrupt` in what prepares and clears up; a running trio receives both."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    # A shell without a terminal starts what runs in its background with SIGINT ignored, and Python leaves it so.
    handlers = {signal.SIGTERM: interrupt, signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def run_until_signal(
    supervisor: Supervisor, local: Local, *, on_ready: Callable[[], None], say: Say
) -> None:
    """Run everything until SIGINT or SIGTERM; a second signal kills instead of waiting."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stop_on_signal, signals, supervisor, say, nursery.cancel_scope)
            nursery.start_soon(_announce, local, on_ready, say)
            await supervisor.run()
            nursery.cancel_scope.cancel()


async def run_for(supervisor: Supervisor, local: Local, work: Callable[[], Awaitable[int]]) -> int:
    """Run everything while `work` runs, then stop in order; return the exit code that `work` returned.

    SIGINT or SIGTERM cancels `work`; the code is 1 then.

    Raises:
        NotReady: the processes didn't come up.
    """
    failure: NotReady | None = None
    code = 1
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.run)
            try:
                async with trio.open_nursery() as working:
                    working.start_soon(_cancel_on_signal, signals, working.cancel_scope)
                    await wait_ready(local)
                    code = await work()
                    working.cancel_scope.cancel()
            except* NotReady as group:
                failure = NotReady(*group.exceptions[0].args)
            supervisor.stop()
    if failure is not None:
        raise failure
    return code


async def _cancel_on_signal(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    await anext(signals)
    scope.cancel()


async def _stop_on_signal(
    signals: AsyncIterator[int], supervisor: Supervisor, say: Say, scope: trio.CancelScope
) -> None:
    await anext(signals)
    say("stopping; once more to kill")
    supervisor.stop()
    await anext(signals)
    scope.cancel()


async def _announce(local: Local, on_ready: Callable[[], None], say: Say) -> None:
    try:
        await wait_ready(local)
    except NotReady as error:
        say(str(error))
    else:
        on_ready()
