"""The automatic worker: registered handlers, run until told to stop."""

from __future__ import annotations

import os
import random
import re
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import trio

from orbit_sdk._client import Client
from orbit_sdk._dialer import Dialer, is_hopeless
from orbit_sdk._errors import APIError, SessionRefused, TransportError
from orbit_sdk._handlers import Handler, build_handler
from orbit_sdk._held import Registration
from orbit_sdk._session import SessionCore
from orbit_sdk._shell import Shell, ShellSettings, log

SDK_NAME: Final = "orbit-python/0.1.0"
CAPACITY_MAX: Final = 1000
NAME_MAX_CHARS: Final = 128
DEFAULT_CAPACITY: Final = 10
DEFAULT_GRACE_SECONDS: Final = 30.0
_ID: Final = re.compile(r"[0-9a-f]{32}")

F = TypeVar("F", bound=Callable[..., Any])


class Worker:
    """Runs handlers for the tasks of some queues.

    `queues` are names or ids; `name` is for people (host and process id unless given); `capacity` (1-1,000) bounds the
    attempts held at once; `grace_seconds` is how long running handlers may go on once the worker has to stop;
    `cancel_on_lapse` cancels a handler when its lease ends by the local clock (by default only the server decides);
    `worker_url` (or ORBIT_WORKER_URL) fixes the dispatcher.
    """

    def __init__(  # noqa: PLR0913 - keyword options with defaults
        self,
        client: Client | str,
        token: str | None = None,
        *,
        queues: Sequence[str],
        capacity: int = DEFAULT_CAPACITY,
        name: str | None = None,
        grace_seconds: float = DEFAULT_GRACE_SECONDS,
        cancel_on_lapse: bool = False,
        worker_url: str | None = None,
    ) -> None:
        if isinstance(client, str) and token is None:
            raise ValueError("a URL needs a token")
        if not 1 <= capacity <= CAPACITY_MAX:
            raise ValueError(f"capacity is 1 to {CAPACITY_MAX}")
        if not queues or isinstance(queues, str):
            raise ValueError("queues is a list of queue names or ids, with one at least")
        self._client = client
        self._token = token or ""
        self._queues = tuple(queues)
        self._capacity = capacity
        self._name = name or f"{socket.gethostname()}:{os.getpid()}"[:NAME_MAX_CHARS]
        self._grace_seconds = grace_seconds
        self._cancel_on_lapse = cancel_on_lapse
        self._worker_url = worker_url or os.environ.get("ORBIT_WORKER_URL") or None
        self._handlers: dict[tuple[str, str], Handler] = {}
        self._shell: Shell | None = None
        self._is_leaving = False
        self.worker_id: Final = secrets.token_hex(16)

    def handler(
        self, name: str, *, version: str = "v1", effect: str | None = None, eager: bool = False
    ) -> Callable[[F], F]:
        """Register the decorated function for tasks of this handler name and version.

        It takes an `Execution` and, if it likes, the payload; async functions run as trio tasks, others in a thread.
        `effect` is PURE, IDEMPOTENT, FENCED or ONCE: what a repetition would do to the world.
        """

        def register(function: F) -> F:
            if self._shell is not None:
                raise RuntimeError("handlers are fixed once the worker runs")
            if (name, version) in self._handlers:
                raise ValueError(f"handler {name} {version} is registered already")
            built = build_handler(function, name, version=version, effect=effect, eager=eager)
            self._handlers[name, version] = built
            return function

        return register

    def drain(self) -> None:
        """Make a running worker stop as on SIGTERM. Call it from the trio loop, as often as you like."""
        self._is_leaving = True
        if self._shell is not None:
            self._shell.drain()

    @property
    def has_drained(self) -> bool:
        """Whether `run` has ended with every outcome acknowledged and nothing left unreported."""
        return self._shell is not None and self._shell.has_drained

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Work until cancelled, SIGTERM, Ctrl-C or `drain`; then finish what runs, report it, and return.

        Starts (in the sense of `nursery.start`) when the first session is open. Raises APIError for a refused
        credential, SessionRefused for a refused registration, ProtocolError where the dispatcher breaks the protocol,
        KeyboardInterrupt after Ctrl-C.
        """
        if not self._handlers:
            raise RuntimeError("register a handler first")
        if self._shell is not None:
            raise RuntimeError("a worker runs once: its identity ends with it")
        async with self._open_client() as client:
            queue_ids = await self._resolve_queues(client)
            core = SessionCore(
                self._registration(queue_ids), random=random.random, cancel_on_lapse=self._cancel_on_lapse
            )
            dialer = Dialer(client, fixed_url=self._worker_url, random=random.random)
            settings = ShellSettings(
                token=client.token,
                handlers=self._handlers,
                capacity=self._capacity,
                grace_seconds=self._grace_seconds,
                ssl_context=client.ssl_context,
            )
            self._shell = Shell(core, dialer, settings)
            if self._is_leaving:
                self._shell.drain()
            await self._shell.run(task_status)

    def _registration(self, queue_ids: tuple[str, ...]) -> Registration:
        return Registration(
            worker_id=self.worker_id,
            sdk=SDK_NAME,
            queues=queue_ids,
            handlers=tuple(handler.declaration for handler in self._handlers.values()),
            capacity=self._capacity,
            concurrency_keys=True,
            name=self._name,
        )

    @asynccontextmanager
    async def _open_client(self) -> AsyncIterator[Client]:
        if isinstance(self._client, Client):
            yield self._client
            return
        async with Client(self._client, self._token) as client:
            yield client

    async def _resolve_queues(self, client: Client) -> tuple[str, ...]:
        pause = Dialer(client, fixed_url=None, random=random.random)
        while not self._is_leaving:
            try:
                return tuple([await _resolve_queue(client, name) for name in self._queues])
            except TransportError as exc:
                log.warning("cannot look up the queues yet: %s", exc)
            except APIError as exc:
                if is_hopeless(exc) or exc.status < 500:
                    raise
                log.warning("cannot look up the queues yet: %s", exc)
            pause.lost(None)
            await trio.sleep(pause.pause())
        return ()


async def _resolve_queue(client: Client, name: str) -> str:
    if _ID.fullmatch(name):
        return name
    page = await client.list_queues(name=name, limit=1)
    if not page.queues:
        raise SessionRefused("NOT_FOUND", f"no queue is named {name!r}")
    return page.queues[0].id
