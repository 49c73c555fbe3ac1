"""A whole Orbit on this machine: database, tables, first credential, processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from orbit.cli.watch import kept_running
from orbit.domain.permissions import ACTIONS
from orbit.kernel.provision import Bootstrap
from orbit.localdb.instance import create, find
from orbit.localdb.process import Lifetime
from orbit.runtime.bootstrap import BootstrapFile, run_bootstrap
from orbit.runtime.setting_values import Address
from orbit.store.dsn import Dsn
from orbit.store.migrations import upgrade
from orbit.store.session import Session
from orbit_sdk import APIError, Client, TransportError

Say = Callable[[str], None]

READY_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.25
# One person's own machine: the queue is as wide as the rules allow for a start, the credential may do everything.
LOCAL: Final = Bootstrap(
    application="local",
    namespace="default",
    environment="local",
    queue="default",
    actions=ACTIONS,
    max_concurrency=1_000,
    rate_per_second=100_000,
    must_match_actions=False,
)


class NotReady(Exception):
    """The processes run but don't serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """How a local Orbit is reached."""

    url: str
    worker_url: str
    credentials_file: Path
    token: str


def database_home(home: Path) -> Path:
    return home / "database"


def credentials_file(home: Path) -> Path:
    return home / "credentials.json"


@contextmanager
def running_database(
    home: Path, given: Dsn | None, say: Say, *, lifetime: Lifetime = Lifetime.SUPERVISED
) -> Iterator[Dsn]:
    """Run the home's private database for the block, again when it ends by itself; a given one is used as it is.

    A temporary one is removed afterwards, with all that it has outside of the home.

    Raises:
        LocalDatabaseError: no server can be had, or it doesn't start.
    """
    if given is not None:
        yield given
        return
    instance = create(database_home(home), say=say)
    say(f"starting {instance.flavour.value} {'.'.join(map(str, instance.version))} in {database_home(home)}")
    try:
        instance.start(lifetime)
        with kept_running(instance, say):
            yield instance.dsn()
    finally:
        instance.stop()
        if lifetime is Lifetime.TEMPORARY:
            instance.destroy()


def remove_data(home: Path) -> None:
    """Remove the private database with everything in it, and the credential for it."""
    credentials_file(home).unlink(missing_ok=True)
    if database_home(home).exists():
        find(database_home(home)).destroy()


def prepare(dsn: Dsn, home: Path, say: Say) -> BootstrapFile:
    """Bring the tables up to date, and make or find the local credential."""
    upgrade(dsn, say=say)
    session = Session(dsn)
    try:
        content, made = run_bootstrap(session, LOCAL, credentials_file(home))
    finally:
        session.close()
    if made:
        say(f"made a credential: {credentials_file(home)}")
    return content


def child_environment(dsn: Dsn, http: Address, dispatch: Address) -> Mapping[str, str]:
    """Return the environment of the processes: this one's, with what was decided here."""
    return {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "ORBIT_MYSQL_DSN": dsn.text(),
        "ORBIT_HTTP_ADDR": str(http),
        "ORBIT_DISPATCH_ADDR": str(dispatch),
    }


async def wait_ready(local: Local) -> None:
    """Wait until the API answers and names a live dispatcher.

    Raises:
        NotReady: not within a minute.
    """
    seen = "the API doesn't answer"
    with trio.move_on_after(READY_SECONDS):
        async with Client(local.url, local.token) as client:
            while True:
                seen = await _look(client, local.worker_url)
                if not seen:
                    return
                await trio.sleep(POLL_SECONDS)
    raise NotReady(f"not ready after {READY_SECONDS:g} s: {seen}; see the log")


async def _look(client: Client, worker_url: str) -> str:
    """Return what is still missing, an empty text when all is well."""
    try:
        await client.check_ready()
        found = await client.list_dispatchers()
    except TransportError:
        return "the API doesn't answer"
    except APIError as error:
        return f"the API answers {error}"
    if not any(dispatcher.url == worker_url for dispatcher in found):
        return "no dispatcher has registered"
    return ""
