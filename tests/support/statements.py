"""Stand between a transaction and its connection: fail, or stop, before a chosen statement."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from orbit.store.connection import connect
from orbit.store.driver import DriverConnection
from orbit.store.dsn import Dsn

Hook = Callable[[str], None]


class InjectedFault(Exception):
    """A failure that a test put between two statements."""


class HookedConnection:
    """A real connection whose statements and COMMITs are announced to a hook first."""

    def __init__(self, connection: DriverConnection, hook: Hook) -> None:
        self._connection = connection
        self._hook = hook
        self.answered = 0

    def query(self, sql: str) -> int:
        self._hook(sql)
        return self._connection.query(sql)

    def send(self, statements: Sequence[str]) -> int:
        """Announce statements that travel together one by one, and run each alone."""
        affected = 0
        for self.answered, statement in enumerate(statements):
            affected = self.query(statement)
        return affected

    def send_all(self, statements: Sequence[str]) -> list[Any]:
        """The same for statements whose rows are all wanted."""
        return [self._rows_of(statement) for statement in statements]

    def _rows_of(self, statement: str) -> Any:
        self.query(statement)
        return self._connection.result_rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def hooked(hook: Hook) -> Callable[..., DriverConnection]:
    """Return a connector for `Session` that announces every statement of its transactions to `hook`."""

    def connector(dsn: Dsn, **options: Any) -> Any:
        return HookedConnection(connect(dsn, **options), hook)

    return connector


class FailBefore:
    """Fails before the `position`-th statement (from 0) since it was armed; COMMIT counts as one."""

    def __init__(self) -> None:
        self._left: int | None = None
        self.struck: str | None = None

    def arm(self, position: int) -> None:
        self._left, self.struck = position, None

    def __call__(self, sql: str) -> None:
        if self._left is None:
            return
        if self._left == 0:
            self._left, self.struck = None, sql
            raise InjectedFault(sql)
        self._left -= 1


class StopBefore:
    """Stops the first statement that contains `words`, until it is let go; as a frozen process would."""

    def __init__(self, words: str) -> None:
        self._words = words
        self._is_armed = True
        self._reached = threading.Event()
        self._go = threading.Event()

    def __call__(self, sql: str) -> None:
        if self._is_armed and self._words in sql:
            self._is_armed = False
            self._reached.set()
            assert self._go.wait(30), "nobody let the statement go"

    def await_reached(self, within: float = 10.0) -> None:
        """Return once the statement has been reached and stopped."""
        assert self._reached.wait(within), f"no statement with {self._words!r} within {within:g} s"

    def let_go(self) -> None:
        self._go.set()


class Recorder:
    """Remembers the statements that pass."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def __call__(self, sql: str) -> None:
        self.statements.append(sql)
