"""What one orbit-dispatch process knows, and how messages become operations. Nothing here grants a right to execute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import trio

from orbit.domain.errors import InvalidArgument, OrbitError
from orbit.domain.limits import GROUP_OTHERS_MAX
from orbit.pulse.commands import Assignment
from orbit.pulse.session_commands import OpenSession
from orbit.pulse.sessions import open_sessions
from orbit.runtime.database import Groups
from orbit.runtime.hints import Hint, application_hash
from orbit.scheduler import commands, messages, replies
from orbit.scheduler.application import RESULT_BYTES, Application, Tick, Waiting
from orbit.scheduler.databases import Databases
from orbit.scheduler.payloads import Payloads
from orbit.scheduler.renewals import Renewals
from orbit.scheduler.session import Phase, ProtocolViolation, WorkerSession
from orbit.scheduler.ticks import Ticks


class Dispatcher:
    """The sessions and applications of this process.

    `run` must run beside the connections. `probe_soon` is called when a pool that a tick didn't claim for may have
    work, `tell_release` with the application for which a tick may have given permits and keys back.
    """

    def __init__(self, databases: Databases, *, dispatcher_id: bytes, lease_ms: int, renew_ms: int) -> None:
        self.dispatcher_id: Final = dispatcher_id
        self.sessions: dict[bytes, WorkerSession] = {}
        self.applications: dict[bytes, Application] = {}
        self.ended: list[bytes] = []
        self.is_stopping = False
        self.probe_soon: Callable[[], None] = lambda: None
        self.tell_release: Callable[[bytes], None] = lambda _: None
        self._lease_ms = lease_ms
        self._renew_ms = renew_ms
        self._workers: dict[bytes, WorkerSession] = {}
        self._payloads = Payloads(databases.ticks, undeliverable=self._hand_back)
        self._ticks = Ticks(databases.ticks, self._payloads, after=self._after_tick)
        self._renewals = Renewals(databases.leases)
        self._opens: Groups[OpenSession] = Groups(
            databases.control, open_sessions, max_operations=GROUP_OTHERS_MAX
        )
        self._send_opens, self._receive_opens = trio.open_memory_channel[
            tuple[WorkerSession, str, OpenSession]
        ](float("inf"))

    async def run(self) -> None:
        """Commit what the sessions ask for, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ticks.run)
            nursery.start_soon(self._payloads.run)
            nursery.start_soon(self._renewals.run)
            async for session, reply_to, command in self._receive_opens:
                nursery.start_soon(self._open, session, reply_to, command)

    def receive(self, session: WorkerSession, requests: Sequence[Any]) -> None:
        """Route the messages of one frame.

        Raises:
            ProtocolViolation: the connection is to end with 1008.
        """
        touched = False
        for request in requests:
            kind = type(request)
            if kind is messages.Hello:
                self._hello(session, request)
                continue
            session.require_live()
            try:
                touched |= self._route(session, kind, request)
            except OrbitError as error:
                session.outbox.put(replies.error(request.id, error))
        if touched:
            self.application(session.application_id).wake(trio.current_time())

    def application(self, application_id: bytes) -> Application:
        found = self.applications.get(application_id)
        if found is None:
            found = Application(application_id, lease_ms=self._lease_ms, wake=self._ticks.add)
            found.is_stopping = self.is_stopping
            self.applications[application_id] = found
        return found

    def hint(self, hint: Hint) -> None:
        """Take a hint that there are new tasks: claim at once where they may be, or probe where that is wiser."""
        now = trio.current_time()
        for found in self.hinted(hint.application):
            pools = [pool for pool in found.pools.values() if hint.concerns(pool.queue_hashes)]
            claims = [pool.hint(now) for pool in pools]
            if any(claims):
                found.wake(now)
            if not all(claims):
                self.probe_soon()

    def hint_release(self, hint: Hint) -> None:
        """Take a hint that permits and keys of an application came back elsewhere: look whether a pool here can claim.

        It comes with every result of a busy neighbour, so it costs a probe shared with others, not a transaction.
        """
        if any(pool.has_room() for found in self.hinted(hint.application) for pool in found.pools.values()):
            self.probe_soon()

    def hinted(self, *hashes: bytes) -> list[Application]:
        """Return the applications that hints mean by these hashes."""
        return [app for app in self.applications.values() if application_hash(app.application_id) in hashes]

    def leave(self, session: WorkerSession) -> None:
        """Forget a session whose connection has ended; its leases go on until they end by themselves."""
        phase, session.phase = session.phase, Phase.ENDED
        if phase not in (Phase.OPEN, Phase.RESUMING):
            return
        self.sessions.pop(session.session_id, None)
        if self._workers.get(session.worker_ref) is session:
            del self._workers[session.worker_ref]
        self.application(session.application_id).leave(session)
        self.ended.append(session.session_id)
        self._payloads.release(session)

    def stop_claiming(self) -> None:
        """Assign nothing more; what workers ask for is still answered."""
        self.is_stopping = True
        for application in self.applications.values():
            application.is_stopping = True

    @property
    def is_idle(self) -> bool:
        """Tell whether every command that arrived has been answered."""
        return self._renewals.is_idle and all(app.is_idle for app in self.applications.values())

    def _route(self, session: WorkerSession, kind: type[Any], request: Any) -> bool:
        """Put a command in line; tell whether its application has something to do because of it."""
        application = self.application(session.application_id)
        session_id = session.session_id
        if kind is messages.Result:
            finish = commands.finish_command(request, session_id)
            size = RESULT_BYTES + len(finish.output or b"")
            session.expect(size)
            application.finish(Waiting(session, request.id, finish, size))
        elif kind is messages.Start:
            start = commands.start_command(request, session_id, self._lease_ms)
            session.expect()
            application.start(Waiting(session, request.id, start))
        elif kind is messages.Renew:
            renew = commands.renew_command(request, session_id, self._lease_ms)
            session.expect()
            self._renewals.add(session, request.id, renew)
            return False
        elif kind is messages.Decline:
            decline = commands.decline_command(request, session_id)
            session.expect()
            session.declines(decline)
            application.decline(Waiting(session, request.id, decline))
        elif kind is messages.Resume:
            resume = commands.resume_command(request, session_id, self._lease_ms)
            session.expect()
            application.resume(Waiting(session, request.id, resume))
        else:
            session.drain(request.id)
            return False
        return True

    def _hello(self, session: WorkerSession, hello: messages.Hello) -> None:
        if self.is_stopping:
            session.outbox.end(1001, "shutting down")
            return
        if session.phase is not Phase.NEW:
            raise ProtocolViolation("hello was sent before")
        try:
            command = commands.open_command(hello, token=session.token, dispatcher_id=self.dispatcher_id)
        except InvalidArgument as error:
            session.outbox.put(replies.error(hello.id, error))
            return
        session.greet(command)
        self._send_opens.send_nowait((session, hello.id, command))

    async def _open(self, session: WorkerSession, reply_to: str, command: OpenSession) -> None:
        try:
            opened = await self._opens.run(session.application_id, command)
        except OrbitError as error:
            session.refuse(reply_to, error)
            return
        if session.phase is Phase.ENDED:
            self.ended.append(opened.session_id)
            return
        session.open(reply_to, opened, lease_ms=self._lease_ms, renew_ms=self._renew_ms)
        self.sessions[opened.session_id] = session
        older = self._workers.get(opened.worker_ref)
        if older is not None and older.generation > opened.generation:
            session.outbox.end(1008, "SUPERSEDED")
        else:
            self._workers[opened.worker_ref] = session
            if older is not None:
                older.outbox.end(1008, "SUPERSEDED")
        session.outbox.on_room = lambda: self._made_room(session)
        application = self.application(session.application_id)
        application.join(session)
        application.wake(trio.current_time())
        self.probe_soon()

    def _made_room(self, session: WorkerSession) -> None:
        self._payloads.release(session)
        self.application(session.application_id).wake(trio.current_time())

    def _hand_back(self, session: WorkerSession, assignment: Assignment) -> None:
        session.held.pop(assignment.attempt_id, None)
        application = self.application(session.application_id)
        application.hand_back(assignment)
        application.wake(trio.current_time())

    def _after_tick(self, application: Application, tick: Tick) -> None:
        """Look soon for other pools, here and elsewhere: what this tick released (a key, a permit) may be theirs."""
        if not tick.releases:
            return
        self.tell_release(application.application_id)
        claimed = [pool for pool in application.pools.values() if pool in tick.origins]
        if len(claimed) < len(application.pools):
            self.probe_soon()


def all_sessions(applications: Iterable[Application]) -> Iterator[WorkerSession]:
    """Return the open sessions of some applications."""
    for application in applications:
        for pool in application.pools.values():
            yield from pool.sessions.values()
