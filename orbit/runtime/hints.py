"""Wake-up hints: lossy datagrams from the process that commits to the live dispatchers (01-architecture "Waking up").

A hint is 16 bytes: magic (4), kind (1), the last 3 bytes of the queue id or zeros for all queues, the first 8 bytes of
the application id. It carries no authority and nothing depends on its arrival: it only makes a claim come sooner.
"""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol, TypeVar

import trio

from orbit.store.sql.dispatcher_lists import select_live_dispatchers
from orbit.store.transaction import Tx

T = TypeVar("T")

HINT_BYTES: Final = 16
REFRESH_SECONDS: Final = 2.0
_MAGIC: Final = b"orb1"
# Beyond this many queues in one transaction its hint speaks of all.
HINTED_QUEUES_MAX: Final = 4
_APPLICATION_BYTES: Final = 8
_QUEUE_BYTES: Final = 3
_ALL_QUEUES: Final = bytes(_QUEUE_BYTES)
_LAYOUT = struct.Struct(f">4sB{_QUEUE_BYTES}s{_APPLICATION_BYTES}s")
# What a peer that just went away makes of a datagram socket; the next datagram may be fine.
_PASSING = frozenset({errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH})

Address = tuple[str, int]


class HintKind(IntEnum):
    """What was committed, or is about to be: new tasks, a cancel that a worker must learn of, or room: permits, keys,
    limits."""

    SUBMIT = 1
    CANCEL = 2
    RELEASE = 3


@dataclass(frozen=True, slots=True)
class Hint:
    """One wake-up; `application` is the first 8 bytes of the application id, `queue` the last 3 of a queue's."""

    kind: HintKind
    application: bytes
    queue: bytes = _ALL_QUEUES

    def concerns(self, queue_hashes: Collection[bytes]) -> bool:
        """Tell whether it speaks of one of these queues, or of all."""
        return self.queue == _ALL_QUEUES or self.queue in queue_hashes


class Reads(Protocol):
    """The part of the database that the sender needs."""

    async def read(self, work: Callable[[Tx], T]) -> T: ...


def application_hash(application_id: bytes) -> bytes:
    """Return the 8 bytes by which hints name an application."""
    return application_id[:_APPLICATION_BYTES]


def queue_hash(queue_id: bytes) -> bytes:
    """Return the 3 bytes by which hints name a queue: its id's last ones, since the first ones tell the time."""
    return queue_id[-_QUEUE_BYTES:]


def hints_of(kind: HintKind, application_id: bytes, queue_ids: Collection[bytes] = ()) -> list[Hint]:
    """Return a hint for each of a few queues, one for all queues where none or many are named."""
    application = application_hash(application_id)
    if not 0 < len(queue_ids) <= HINTED_QUEUES_MAX:
        return [Hint(kind, application)]
    return [Hint(kind, application, queue_hash(queue_id)) for queue_id in queue_ids]


def encode_hint(hint: Hint) -> bytes:
    return _LAYOUT.pack(_MAGIC, hint.kind, hint.queue, hint.application)


def decode_hint(data: bytes) -> Hint | None:
    """Return the hint of a datagram, None for anything else."""
    if len(data) != HINT_BYTES:
        return None
    magic, kind, queue, application = _LAYOUT.unpack(data)
    if magic != _MAGIC or kind not in set(HintKind):
        return None
    return Hint(HintKind(kind), application, queue)


def parse_address(text: str) -> Address | None:
    """Return host and port of `host:port` with a numeric IPv4 or bracketed IPv6 host, else None."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not port.isdecimal() or not 0 < int(port) < 65_536 or not _is_numeric(host):
        return None
    return host, int(port)


def _is_numeric(host: str) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.inet_pton(family, host)
    except OSError:
        return False
    return True


class HintSender:
    """Sends hints to all live dispatchers without ever blocking or failing its caller.

    `run` must run beside it: it keeps the addresses fresh while hints are sent (a read each 2 s) and sends what
    gathered since the event loop last came round, each hint once, at most each `pace_seconds`; `send_now` waits for
    neither. `own` is an address that needs none.
    """

    def __init__(self, database: Reads, *, own: str = "", pace_seconds: float = 0.0) -> None:
        self._database = database
        self._own = own
        self._pace_seconds = pace_seconds
        self._addresses: list[Address] = []
        self._pending: set[Hint] = set()
        self._wake = trio.Event()
        self._refreshed_at = -REFRESH_SECONDS
        self._refreshing = False
        # For other threads: they can't ask for the event loop's time.
        self._fresh_until = 0.0
        self._token: trio.lowlevel.TrioToken | None = None
        self._sockets: dict[socket.AddressFamily, socket.socket] = {}

    def send(self, kind: HintKind, application_id: bytes) -> None:
        """Note that something was committed; the datagrams leave as soon as the event loop comes round."""
        self._note(hints_of(kind, application_id))

    def send_now(self, kind: HintKind, application_id: bytes, queue_ids: Collection[bytes] = ()) -> None:
        """Send before this returns, from whatever thread; where the addresses are old, `run` sends instead."""
        hints = hints_of(kind, application_id, queue_ids)
        if time.monotonic() < self._fresh_until:
            self._deliver(hints, self._addresses)
        elif self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._note, hints)

    def _note(self, hints: Iterable[Hint]) -> None:
        self._pending.update(hints)
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled."""
        self._token = trio.lowlevel.current_trio_token()
        with _socket(socket.AF_INET) as ipv4, _socket(socket.AF_INET6) as ipv6:
            self._sockets = {socket.AF_INET: ipv4, socket.AF_INET6: ipv6}
            async with trio.open_nursery() as nursery:
                while True:
                    await self._wake.wait()
                    self._wake = trio.Event()
                    hints, self._pending = self._pending, set()
                    self._deliver(hints, self._addresses)
                    if not self._refreshing and trio.current_time() - self._refreshed_at >= REFRESH_SECONDS:
                        self._refreshing = True
                        # Sent to new addresses too: after an idle time the old ones may all be gone.
                        nursery.start_soon(self._refresh, hints)
                    if self._pace_seconds:
                        await trio.sleep(self._pace_seconds)

    async def _refresh(self, hints: set[Hint]) -> None:
        try:
            rows = await self._database.read(select_live_dispatchers)
        except Exception:  # noqa: BLE001 - whatever ails the database, hints may be late but end no process
            return
        finally:
            self._refreshed_at = trio.current_time()
            self._refreshing = False
        parsed = (
            parse_address(row.hint_address) for row in rows if row.hint_address not in (None, "", self._own)
        )
        fresh = [address for address in parsed if address is not None]
        new = set(fresh) - set(self._addresses)
        self._addresses = fresh
        self._fresh_until = time.monotonic() + REFRESH_SECONDS
        self._deliver(hints, new)

    def _deliver(self, hints: Iterable[Hint], addresses: Collection[Address]) -> None:
        for data in map(encode_hint, hints):
            for address in addresses:
                family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
                with suppress(OSError):  # full buffer, unreachable, shut down: a probe comes anyway
                    self._sockets[family].sendto(data, address)


class HintReceiver:
    """Receives hints on a datagram socket: an async iterator of `Hint`; noise is passed over.

    `address` is what to register in `dispatchers.hint_address`.
    """

    def __init__(self, bound: trio.socket.SocketType, address: str) -> None:
        self._socket = bound
        self.address = address

    @classmethod
    async def open(cls, host: str = "127.0.0.1", port: int = 0, *, advertised: str = "") -> HintReceiver:
        """Bind a numeric host and port (0: any); `advertised` is the host to tell others if it differs."""
        bound = trio.socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        try:
            await bound.bind((host, port))
        except BaseException:
            bound.close()
            raise
        told = advertised or host
        return cls(bound, f"{f'[{told}]' if ':' in told else told}:{bound.getsockname()[1]}")

    def __aiter__(self) -> HintReceiver:
        return self

    async def __anext__(self) -> Hint:
        while True:
            try:
                data = await self._socket.recv(HINT_BYTES + 1)
            except OSError as error:
                if error.errno in _PASSING:
                    continue
                raise
            hint = decode_hint(data)
            if hint is not None:
                return hint

    def close(self) -> None:
        self._socket.close()


def _socket(family: socket.AddressFamily) -> socket.socket:
    made = socket.socket(family, socket.SOCK_DGRAM)
    made.setblocking(False)
    return made
