"""A dispatcher in the test's own process, on ports of its own and the session's database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from orbit.runtime.settings import load_settings
from orbit.scheduler.databases import open_databases
from orbit.scheduler.service import Service, serving
from orbit.store.dsn import Dsn

MakeService = Callable[..., AbstractAsyncContextManager[Service]]


@pytest.fixture
def make_service(dsn: Dsn) -> MakeService:
    """Start a dispatcher for a block; `lease_ms` defaults to 3 s."""

    @asynccontextmanager
    async def make(
        *, lease_ms: int = 3_000, dsn: Dsn = dsn, certificate: Path | None = None, key: Path | None = None
    ) -> AsyncIterator[Service]:
        settings = load_settings(
            {
                "ORBIT_MYSQL_DSN": dsn.text(),
                "ORBIT_DISPATCH_ADDR": "127.0.0.1:0",
                "ORBIT_LEASE_MS": str(lease_ms),
                "ORBIT_TLS_CERT": str(certificate or ""),
                "ORBIT_TLS_KEY": str(key or ""),
            }
        )
        async with open_databases(dsn) as databases, serving(settings, databases) as started:
            yield started

    return make


@pytest.fixture
async def service(make_service: MakeService) -> AsyncIterator[Service]:
    """A dispatcher for one test."""
    async with make_service() as started:
        yield started
