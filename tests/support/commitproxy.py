"""Lose a COMMIT, or its answer, between a process and the database.

The proxy reads the MySQL packet stream (no TLS) far enough to know each statement and the answer to a COMMIT, so that
the fault strikes exactly there: the client sees the same lost connection whether the server has committed or not.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from pymysql.constants import SERVER_STATUS

from orbit.store.driver import read_length
from orbit.store.dsn import Dsn
from tests.support.tcpproxy import Direction, Link, TcpProxy

COM_QUERY = 0x03
OK_PACKET = 0x00

Statements = Sequence[str]
_WRITE = re.compile(r"\s*(INSERT|UPDATE|DELETE|REPLACE)\b", re.IGNORECASE)


class Loss(Enum):
    """What is lost."""

    BEFORE = "the COMMIT itself: the connection is cut before it reaches the server"
    AFTER = "the server's OK: the connection is cut once the proxy has seen it"
    HANG = "the server's OK: it never comes, and the connection stays open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """One fault that struck: what was lost, and the statements of its transaction."""

    loss: Loss
    statements: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _Arming:
    loss: Loss
    left: int
    times: int
    when: Callable[[Statements], bool]


@dataclass(slots=True)
class _Stream:
    """What is known of one connection."""

    buffers: dict[Direction, bytearray] = field(default_factory=lambda: {d: bytearray() for d in Direction})
    statements: list[str] = field(default_factory=list)
    # The fault that waits for the server's answer to a COMMIT.
    pending: Loss | None = None
    struck: tuple[str, ...] = ()


class CommitProxy(TcpProxy):
    """Stands between processes and `dsn`; give them `dsn` of this object instead."""

    def __init__(self, dsn: Dsn) -> None:
        super().__init__(dsn.port, dsn.host)
        self._dsn = dsn
        self._streams: dict[Link, _Stream] = {}
        self._arming: _Arming | None = None
        self._state = threading.Lock()
        self._struck = threading.Condition(self._state)
        self._before: Callable[[str], None] = lambda _: None
        self.commits = 0
        self.losses: list[Lost] = []

    @property
    def dsn(self) -> Dsn:
        """The address that leads through this proxy."""
        return replace(self._dsn, host="127.0.0.1", port=self.port, unix_socket=None, tls="off")

    def arm(
        self,
        loss: Loss,
        *,
        nth: int = 1,
        times: int = 1,
        when: Callable[[Statements], bool] = lambda _: True,
    ) -> None:
        """Strike at the `nth` COMMIT from now whose transaction's statements satisfy `when`, `times` in a row."""
        with self._state:
            self._arming = _Arming(loss=loss, left=nth, times=times, when=when)

    def disarm(self) -> None:
        with self._state:
            self._arming = None

    def before_each(self, hook: Callable[[str], None]) -> None:
        """Call `hook` with each statement before it is passed on, on the connection's own thread."""
        self._before = hook

    def await_losses(self, count: int = 1, within: float = 15.0) -> list[Lost]:
        """Return the faults that have struck, once there are `count` of them."""
        with self._struck:
            assert self._struck.wait_for(lambda: len(self.losses) >= count, within), (
                f"only {len(self.losses)} of {count} COMMITs were lost within {within:g} s"
            )
            return list(self.losses)

    def filter(self, link: Link, direction: Direction, data: bytes) -> bytes:
        """Pass whole packets on, but for those that a fault strikes."""
        with self._state:
            stream = self._streams.setdefault(link, _Stream())
        buffer = stream.buffers[direction]
        buffer += data
        passed = bytearray()
        while len(buffer) >= 4:
            end = 4 + int.from_bytes(buffer[:3], "little")
            if len(buffer) < end:
                break
            packet = bytes(buffer[:end])
            del buffer[:end]
            look = self._from_client if direction is Direction.UP else self._from_server
            if not look(link, stream, packet):
                break
            passed += packet
        return b"" if link.is_cut else bytes(passed)

    def _from_client(self, link: Link, stream: _Stream, packet: bytes) -> bool:
        """Note a statement; tell whether the packet is to be passed on."""
        sequence, command = packet[3], packet[4] if len(packet) > 4 else None
        if sequence != 0 or command != COM_QUERY:
            return True
        text = packet[5:].decode("utf-8", "replace")
        self._before(text)
        # Writes travel together, the last ones with the COMMIT; a semicolon inside a value only splits what a pattern
        # looks at.
        *writes, last = text.split(";")
        stream.statements.extend(writes)
        word = last.strip().upper()
        if word not in ("COMMIT", "ROLLBACK"):
            stream.statements.append(last)
            return True
        statements, stream.statements = tuple(stream.statements), []
        return word == "ROLLBACK" or self._on_commit(link, stream, statements)

    def _on_commit(self, link: Link, stream: _Stream, statements: tuple[str, ...]) -> bool:
        loss = self._choose(statements)
        if loss is Loss.BEFORE:
            link.cut()
            self._note(loss, statements)
            return False
        stream.pending, stream.struck = loss, statements
        return True

    def _from_server(self, link: Link, stream: _Stream, packet: bytes) -> bool:
        loss = stream.pending
        if loss is None:
            return True
        if _says_more(packet):
            return True  # A write that travelled with the COMMIT.
        stream.pending = None
        if len(packet) < 5 or packet[4] != OK_PACKET:
            return True  # The COMMIT failed: there is no success to lose.
        if loss is Loss.AFTER:
            link.cut()
        else:
            stream.pending = loss
        self._note(loss, stream.struck)
        return False

    def _choose(self, statements: tuple[str, ...]) -> Loss | None:
        with self._state:
            self.commits += 1
            arming = self._arming
            if arming is None or not arming.when(statements):
                return None
            arming.left -= 1
            if arming.left > 0:
                return None
            arming.times -= 1
            if arming.times <= 0:
                self._arming = None
            return arming.loss

    def _note(self, loss: Loss, statements: tuple[str, ...]) -> None:
        with self._struck:
            self.losses.append(Lost(loss=loss, statements=statements))
            self._struck.notify_all()


def _says_more(packet: bytes) -> bool:
    """Tell whether a packet is an OK after which further results of the same query follow."""
    if len(packet) < 5 or packet[4] != OK_PACKET:
        return False
    _, position = read_length(packet, 5)
    _, position = read_length(packet, position)
    status = int.from_bytes(packet[position : position + 2], "little")
    return bool(status & SERVER_STATUS.SERVER_MORE_RESULTS_EXISTS)


def writes(table: str) -> Callable[[Statements], bool]:
    """Return a condition: the transaction has written to `table`."""
    word = re.compile(rf"\b{re.escape(table)}\b")
    return lambda statements: any(_WRITE.match(text) and word.search(text[:200]) for text in statements)


def inserts(table: str) -> Callable[[Statements], bool]:
    """Return a condition: the transaction has inserted into `table`."""
    start = re.compile(rf"\s*INSERT\s+INTO\s+{re.escape(table)}\b", re.IGNORECASE)
    return lambda statements: any(start.match(text) for text in statements)


def every(nth: int, condition: Callable[[Statements], bool]) -> Callable[[Statements], bool]:
    """Return a condition that holds for each `nth` transaction that satisfies the given one."""
    count = 0

    def holds(statements: Statements) -> bool:
        nonlocal count
        count += condition(statements)
        return condition(statements) and count % nth == 0

    return holds
