"""`python -m orbit.localdb fetch|start|stop|status|destroy`: private databases for people and for make."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from orbit.localdb.bundle import Flavour, find_server
from orbit.localdb.errors import LocalDatabaseError
from orbit.localdb.instance import Instance, create, find
from orbit.localdb.process import Lifetime


def main() -> None:
    """Run one command; exit with 1 and one line on standard error when it fails."""
    parser = argparse.ArgumentParser(prog="python -m orbit.localdb", description=__doc__)
    parser.add_argument("command", choices=["fetch", "start", "stop", "status", "destroy"])
    parser.add_argument("--flavour", choices=[flavour.value for flavour in Flavour])
    parser.add_argument("--home", type=Path, default=Path(".orbit/database"))
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    arguments = parser.parse_args()
    try:
        if arguments.command == "fetch":
            fetch(arguments.flavour)
        elif arguments.command == "start":
            start(arguments.home, arguments.flavour, arguments.port)
        elif arguments.command == "destroy":
            find(arguments.home).destroy()
        else:
            show(stopped(arguments.home) if arguments.command == "stop" else find(arguments.home))
    except LocalDatabaseError as error:
        sys.exit(f"orbit: {error}")


def fetch(flavour: str | None) -> None:
    """Make sure that servers of this flavour (default: of both) can be started."""
    for wanted in [Flavour(flavour)] if flavour else list(Flavour):
        server = find_server(wanted, say=say)
        print(f"{server.flavour.value} {server.version_text}")


def start(home: Path, flavour: str | None, port: int) -> None:
    """Start the instance, made if need be, to run until it is stopped."""
    instance = create(home, flavour, port=port, say=say)
    instance.start(Lifetime.DETACHED)
    show(instance)


def stopped(home: Path) -> Instance:
    """Stop the instance and return it."""
    instance = find(home)
    instance.stop()
    return instance


def show(instance: Instance) -> None:
    """Print what an instance is and how it is reached (with its password: it is the user's own)."""
    state = f"running (pid {instance.pid})" if instance.is_running else "stopped"
    print(f"{instance.flavour.value} {'.'.join(map(str, instance.version))}: {state}")
    print(f"  home    {instance.home}")
    print(f"  socket  {instance.socket}")
    print(f"  address {instance.dsn().text()}")


def say(text: str) -> None:
    """Print progress apart from the result."""
    print(f"orbit: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
