"""Move the database's time: freeze it for one connection, or step the whole server's clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orbit.localdb.bundle import Flavour, fetch_faketime
from orbit.localdb.instance import Instance
from orbit.store.connection import connect
from orbit.store.driver import DriverConnection
from orbit.store.dsn import Dsn
from tests.support.database import running_instance
from tests.support.eventually import eventually


def frozen_at(moment: datetime) -> Callable[..., DriverConnection]:
    """Return a connector whose connections see UTC_TIMESTAMP(6) stand still at `moment` (naive UTC)."""
    microseconds = round(moment.replace(tzinfo=UTC).timestamp() * 1_000_000)
    # The servers keep the number as a double, and one of them cuts where the other rounds.
    text = f"{microseconds // 1_000_000}.{microseconds % 1_000_000:06d}3"

    def connector(dsn: Dsn, **options: Any) -> DriverConnection:
        connection = connect(dsn, **options)
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION timestamp = {text}")
            cursor.execute("SELECT UTC_TIMESTAMP(6)")
            found = cursor.fetchone()
        assert found is not None
        assert found[0] == moment, f"the server's clock is {found[0]}, not {moment}"
        return connection

    return connector


def wrong_clock(shift: str) -> dict[str, str]:
    """Return the environment that makes a process's wall clock wrong by `shift` (`+1d`, `-1d`, `+10m`; empty: none).

    Its monotonic clock stays right, as on a host whose time is set wrong.
    """
    if not shift:
        return {}
    return {"LD_PRELOAD": str(fetch_faketime()), "FAKETIME": shift, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


@dataclass(slots=True, kw_only=True)
class ServerClock:
    """A living server whose clock follows a file."""

    instance: Instance
    file: Path
    shift: str = "+0"

    def step(self, shift: str) -> None:
        """Set the server's clock off from the real one, for example `+2h`, `-1h`, `+0`; return once it has moved."""
        before = self._offset()
        was, self.shift = self.shift, shift
        self.file.write_text(f"{shift}\n")
        if shift != was:
            eventually(lambda: abs(self._offset() - before) > 60, within=10, what="the server's clock steps")

    def _offset(self) -> float:
        """How many seconds the server's clock is ahead of the real one."""
        now = self.instance.execute("SELECT UNIX_TIMESTAMP()")[0][0]
        return int(str(now)) - time.time()


@contextmanager
def clocked_instance(
    folder: Path, flavour: Flavour | None = None, *, settings: dict[str, str] | None = None
) -> Iterator[ServerClock]:
    """Run a private server under libfaketime; its file of the shift lies in `folder`."""
    file = folder / "clock"
    file.write_text("+0\n")
    environment = {
        "LD_PRELOAD": str(fetch_faketime()),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        # Timed waits stay the C library's own; the correction for another library's bug makes each of them long.
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
    }
    with running_instance(flavour, settings=settings, environment=environment) as instance:
        yield ServerClock(instance=instance, file=file)
