"""A loopback TCP proxy that can delay, drop, cut and refuse what passes through it."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from enum import Enum
from types import TracebackType
from typing import Self

CHUNK = 64 * 1024
# Linger of zero seconds: closing sends RST at once, as a killed peer's kernel would.
_ABORT = struct.pack("ii", 1, 0)


class Direction(Enum):
    """Which way bytes travel."""

    UP = "from the client to the server"
    DOWN = "from the server to the client"


class Link:
    """One connection through the proxy: the client's socket, the server's socket, and two threads that pump."""

    def __init__(self, proxy: TcpProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._sockets = {Direction.UP: (client, server), Direction.DOWN: (server, client)}
        self._lock = threading.Lock()
        self.is_cut = False
        self._threads = [
            threading.Thread(target=self._pump, args=(direction,), daemon=True) for direction in Direction
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def cut(self) -> None:
        """End both sides at once with a reset."""
        with self._lock:
            if self.is_cut:
                return
            self.is_cut = True
        for side, _ in self._sockets.values():
            with contextlib.suppress(OSError):
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
            # Wakes the thread that reads it; a close alone would not.
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RD)
        for side, _ in self._sockets.values():
            side.close()

    def send(self, direction: Direction, data: bytes) -> None:
        """Deliver bytes as if they had come through."""
        with contextlib.suppress(OSError):
            self._sockets[direction][1].sendall(data)

    def close_quietly(self) -> None:
        self.cut()
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.is_alive():
                thread.join(2)

    def _pump(self, direction: Direction) -> None:
        source, target = self._sockets[direction]
        while True:
            try:
                data = source.recv(CHUNK)
            except OSError:
                data = b""
            if self.is_cut:
                return
            if not data:
                # A black hole hides the end too: that is what makes the other side half-open.
                if not self._proxy.is_black_hole(direction):
                    with contextlib.suppress(OSError):
                        target.shutdown(socket.SHUT_WR)
                return
            passed = self._proxy.filter(self, direction, data)
            if passed and not self._proxy.is_black_hole(direction):
                self._proxy.pause(direction)
                self.send(direction, passed)


class TcpProxy:
    """Listens on a loopback port and passes connections on to `host:port`. Use as a context manager.

    Faults apply to all present and later connections until they are lifted.
    """

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._target = (host, port)
        self._delays = dict.fromkeys(Direction, 0.0)
        self._black_holes = dict.fromkeys(Direction, False)
        self._links: list[Link] = []
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self.port = 0
        self.accepted = 0

    def __enter__(self) -> Self:
        self.accept()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse()

    def accept(self) -> None:
        """Listen, on the same port as before; lifts `refuse`."""
        if self._listener is not None:
            return
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(128)
        self.port = listener.getsockname()[1]
        self._listener = listener
        self._thread = threading.Thread(target=self._serve, args=(listener,), daemon=True)
        self._thread.start()

    def refuse(self) -> None:
        """Refuse new connections and cut the present ones."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            assert self._thread is not None
            self._thread.join(5)
        self.cut()

    def cut(self) -> int:
        """Reset all present connections; return how many there were."""
        with self._lock:
            links, self._links = self._links, []
        for link in links:
            link.close_quietly()
        return len(links)

    def delay(self, seconds: float, *directions: Direction) -> None:
        """Hold every chunk back for so long, in both directions unless some are named; 0 lifts it."""
        for direction in directions or Direction:
            self._delays[direction] = seconds

    def black_hole(self, *directions: Direction) -> None:
        """Drop all bytes and ends silently, in both directions unless some are named."""
        for direction in directions or Direction:
            self._black_holes[direction] = True

    def pass_again(self) -> None:
        """Lift delays and black holes; bytes that were dropped stay lost."""
        for direction in Direction:
            self._delays[direction], self._black_holes[direction] = 0.0, False

    def is_black_hole(self, direction: Direction) -> bool:
        return self._black_holes[direction]

    def pause(self, direction: Direction) -> None:
        if self._delays[direction]:
            time.sleep(self._delays[direction])

    def filter(self, link: Link, direction: Direction, data: bytes) -> bytes:
        """Return what of `data` is to be passed on; subclasses look into the stream here."""
        return data

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target, timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for side in (client, server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = Link(self, client, server)
            with self._lock:
                self._links = [known for known in self._links if not known.is_cut]
                self._links.append(link)
                self.accepted += 1
            link.start()
