"""The bridge to the database has its connections open before anybody needs them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import trio

from orbit.runtime.database import Database
from orbit.store.dsn import Dsn
from tests.support.commitproxy import CommitProxy
from tests.support.eventually import eventually

THREADS = 3


async def test_connections_are_open_before_they_are_needed(dsn: Dsn) -> None:
    """Connections open at the start, and again when they are lost meanwhile: a renewal waits for no handshake."""
    opened = []
    with CommitProxy(dsn) as way:
        way.before_each(lambda statement: opened.append(statement) if "wait_timeout" in statement else None)

        async def all_open(count: int) -> None:
            await trio.to_thread.run_sync(lambda: eventually(lambda: len(opened) >= count))

        async with Database(way.dsn, writers=THREADS - 1, readers=1) as database:
            await all_open(THREADS)
            assert way.cut() == THREADS
            await all_open(2 * THREADS)
            await database.write(lambda tx: tx.now)
            await database.read(lambda tx: tx.now)
            assert way.accepted == 2 * THREADS


async def test_a_thread_outlives_whatever_keeps_it_from_connecting(dsn: Dsn, tmp_path: Path) -> None:
    """A connection that can't be opened ahead harms nobody; who needs it is told why."""
    distant = replace(dsn, unix_socket=None, tls="verify", tls_ca=str(tmp_path / "missing.pem"))
    async with Database(distant, writers=1, readers=0) as database:
        with trio.fail_after(10), pytest.raises(FileNotFoundError):
            await database.write(lambda tx: tx.now)
