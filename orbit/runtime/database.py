"""The only bridge from trio to the database: dedicated threads that each own one connection, and groups of commands.

A transaction runs whole inside one thread. Cancellation waits for its end: a COMMIT that was sent is never abandoned.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import outcome
import trio

from orbit.domain.errors import OrbitError, Unavailable
from orbit.domain.limits import GROUP_BODIES_MAX_BYTES
from orbit.store.connection import PING_INTERVAL_SECONDS
from orbit.store.dsn import Dsn
from orbit.store.session import Reader, Session, SessionStats
from orbit.store.transaction import Tx

T = TypeVar("T")
Op = TypeVar("Op")
Report = Callable[[str, BaseException], None]


@dataclass(slots=True)
class _Job:
    """One call on its way to a thread and back."""

    work: Callable[[Session], Any]
    token: trio.lowlevel.TrioToken
    task: trio.lowlevel.Task


class _Crew:
    """Threads that take jobs from one queue; each owns one connection and keeps it open while idle."""

    def __init__(self, name: str, sessions: Sequence[Session]) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._sessions = sessions
        self._threads = [
            threading.Thread(target=self._serve, args=(session,), name=f"{name}-{index}", daemon=True)
            for index, session in enumerate(sessions)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    async def stop(self) -> None:
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            await trio.to_thread.run_sync(thread.join)

    def stats(self) -> SessionStats:
        """Return the sum of the threads' counts."""
        total = SessionStats()
        for session in self._sessions:
            for name in SessionStats.__slots__:
                setattr(total, name, getattr(total, name) + getattr(session.stats, name))
        return total

    async def run(self, work: Callable[[Session], T]) -> T:
        job = _Job(work, trio.lowlevel.current_trio_token(), trio.lowlevel.current_task())
        self._jobs.put(job)
        # The thread uses its connection until it is done, so cancellation can't cut this wait short.
        result: T = await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
        return result

    def _serve(self, session: Session) -> None:
        # A first renewal that had to wait for a distant database's handshake could come too late.
        session.keep_open()
        while True:
            try:
                job = self._jobs.get(timeout=PING_INTERVAL_SECONDS)
            except queue.Empty:
                session.keep_open()
                continue
            if job is None:
                session.close()
                return
            result = outcome.capture(job.work, session)
            try:
                job.token.run_sync_soon(trio.lowlevel.reschedule, job.task, result)
            except trio.RunFinishedError:
                return


class Database:
    """Bounded access to one database: `writers` run transactions, `readers` run reads.

    With no readers, a read is a transaction of a writer.
    Use as an async context manager; leaving it waits for the transactions in hand.
    """

    def __init__(
        self, dsn: Dsn, *, writers: int, readers: int, name: str = "db", report: Report | None = None
    ) -> None:
        options: dict[str, Any] = {} if report is None else {"report": report}
        self._writers = _Crew(f"{name}-write", [Session(dsn, **options) for _ in range(writers)])
        self._readers = self._writers
        self._crews = [self._writers]
        if readers:
            self._readers = _Crew(f"{name}-read", [Reader(dsn, **options) for _ in range(readers)])
            self._crews.append(self._readers)

    async def __aenter__(self) -> Self:
        for crew in self._crews:
            crew.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with trio.CancelScope(shield=True):
            for crew in self._crews:
                await crew.stop()

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Run reads, on an autocommitting connection if there are readers."""
        return await self._readers.run(lambda session: session.run(work))

    async def write(self, work: Callable[[Tx], T]) -> T:
        """Run one transaction (see `Session.run` for what it raises and repeats)."""
        return await self._writers.run(lambda session: session.run(work))

    async def write_group(
        self, work: Callable[[Tx, Sequence[Op]], list[Any]], operations: Sequence[Op]
    ) -> list[Any]:
        """Run a list of operations in one transaction; return an outcome or `OrbitError` for each."""
        return await self._writers.run(lambda session: session.run_group(work, operations))

    def stats(self) -> SessionStats:
        """Return commits, statements, deadlocks and the like of the writing connections."""
        return self._writers.stats()


@dataclass(slots=True)
class _Waiting(Generic[Op]):
    """One operation in line, and where its outcome goes."""

    operation: Op
    size: int
    done: trio.Event = field(default_factory=trio.Event)
    outcome: Any = None


class Groups(Generic[Op]):
    """Coalesces operations of one kind that arrive together for one application into one transaction.

    An operation never waits for company: it leaves at once when no transaction of its application is in flight,
    otherwise with all that has gathered meanwhile. `work` answers each operation of its list, in order.
    """

    def __init__(
        self,
        database: Database,
        work: Callable[[Tx, bytes, Sequence[Op]], list[Any]],
        *,
        max_operations: int,
        max_bytes: int = GROUP_BODIES_MAX_BYTES,
        size: Callable[[Op], int] = lambda _: 0,
    ) -> None:
        self._database = database
        self._work = work
        self._max_operations = max_operations
        self._max_bytes = max_bytes
        self._size = size
        self._lines: dict[bytes, deque[_Waiting[Op]]] = {}

    async def run(self, application_id: bytes, operation: Op) -> Any:
        """Return the operation's outcome; raise its `OrbitError`."""
        (result,) = await self.run_many(application_id, [operation])
        if isinstance(result, OrbitError):
            raise result
        return result

    async def run_many(self, application_id: bytes, operations: Sequence[Op]) -> list[Any]:
        """Return an outcome or `OrbitError` for each operation."""
        mine = [_Waiting(operation, self._size(operation)) for operation in operations]
        line = self._lines.get(application_id)
        if line is not None:
            line.extend(mine)
        else:
            line = self._lines[application_id] = deque(mine)
            with trio.CancelScope(shield=True):
                await self._lead(application_id, line, mine[-1])
        for waiting in mine:
            await waiting.done.wait()
        return [waiting.outcome for waiting in mine]

    async def _lead(self, application_id: bytes, line: deque[_Waiting[Op]], last: _Waiting[Op]) -> None:
        """Run groups until the line is empty; after its own operations the leader hands the line on."""
        while line:
            if last.done.is_set():
                trio.lowlevel.spawn_system_task(self._lead, application_id, line, line[-1])
                return
            await self._run_group(application_id, self._take(line))
        del self._lines[application_id]

    def _take(self, line: deque[_Waiting[Op]]) -> list[_Waiting[Op]]:
        group: list[_Waiting[Op]] = []
        room = self._max_bytes
        while line and len(group) < self._max_operations and (not group or line[0].size <= room):
            room -= line[0].size
            group.append(line.popleft())
        return group

    async def _run_group(self, application_id: bytes, group: list[_Waiting[Op]]) -> None:
        outcomes: list[Any]
        try:
            outcomes = await self._database.write_group(
                lambda tx, operations: self._work(tx, application_id, operations),
                [waiting.operation for waiting in group],
            )
        except Exception as error:  # noqa: BLE001 - every waiting caller must get an answer
            unavailable = Unavailable("the command could not be run; repeat with the original identity")
            unavailable.__cause__ = error
            outcomes = [unavailable] * len(group)
        for waiting, result in zip(group, outcomes, strict=True):
            waiting.outcome = result
            waiting.done.set()
