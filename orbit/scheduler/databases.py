"""The database connections of one dispatcher: seven, so that no kind of work waits for another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from orbit.runtime.database import Database
from orbit.scheduler.ticks import COMMITTERS
from orbit.store.dsn import Dsn


@dataclass(frozen=True, slots=True, kw_only=True)
class Databases:
    """`ticks` commits ticks and reads payloads, `leases` renews, `control` probes, authenticates and registers."""

    ticks: Database
    leases: Database
    control: Database


@asynccontextmanager
async def open_databases(
    dsn: Dsn, report: Callable[[str, BaseException], None] | None = None
) -> AsyncIterator[Databases]:
    """Own the connections; leaving waits for the transactions in hand."""
    async with AsyncExitStack() as stack:
        yield Databases(
            ticks=await stack.enter_async_context(
                Database(dsn, writers=COMMITTERS, readers=1, name="ticks", report=report)
            ),
            leases=await stack.enter_async_context(
                Database(dsn, writers=1, readers=0, name="leases", report=report)
            ),
            control=await stack.enter_async_context(
                Database(dsn, writers=1, readers=1, name="control", report=report)
            ),
        )
