"""A whole Orbit for somebody else's measurements: database and daemons under one process, until its stdin closes.

Usage: python -m bench.stack DISPATCHERS. It leaves its caller's process tree, so that the CPU of all it runs can be
told apart from the caller's, and answers with one line of JSON once everything serves.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

import msgspec

from bench.fleet import API, DISPATCH, RECOVER, SECOND_DISPATCH
from bench.lab import open_lab
from bench.scale import FULL
from orbit.localdb.bundle import Flavour


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach it: `pids` are those of the daemons and of the database by name, `root` is their ancestor's."""

    root: int
    dsn: str
    url: str
    worker_urls: list[str]
    pids: dict[str, int]


def main() -> None:
    if os.fork():
        os._exit(0)
    os.setsid()
    signal.signal(signal.SIGTERM, _interrupt)
    serve((DISPATCH, SECOND_DISPATCH)[: int(sys.argv[1])])


def serve(dispatchers: Sequence[str]) -> None:
    """Run everything until stdin is closed."""
    with open_lab(Flavour.MYSQL, FULL, lambda _: None) as lab:
        lab.fleet.keep(API, *dispatchers, RECOVER)
        stack = Stack(
            root=os.getpid(),
            dsn=lab.instance.dsn().text(),
            url=lab.fleet.url(API),
            worker_urls=[lab.fleet.url(name) for name in dispatchers],
            pids={**lab.fleet.pids(), "database": lab.instance.pid or 0},
        )
        sys.stdout.write(msgspec.json.encode(stack).decode() + "\n")
        sys.stdout.flush()
        sys.stdin.read()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
