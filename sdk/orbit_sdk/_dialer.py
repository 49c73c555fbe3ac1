"""Which dispatcher to connect to, and how long to wait between tries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import trio

from orbit_sdk._errors import APIError, ConnectionLost, TransportError
from orbit_sdk._models import Dispatcher

FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0
LOOKUP_SECONDS: Final = 3.0
_HOPELESS_STATUSES: Final = frozenset({400, 401, 403})


class Directory(Protocol):
    """Where the live dispatchers are listed."""

    async def list_dispatchers(self) -> list[Dispatcher]:
        """The live dispatchers."""


def is_hopeless(error: APIError) -> bool:
    """Whether repeating cannot help: the credential or the request itself is refused."""
    return error.status in _HOPELESS_STATUSES


class Dialer:
    """Picks the live dispatcher with the fewest sessions, others first after a failure; remembers them in an outage."""

    def __init__(self, directory: Directory, *, fixed_url: str | None, random: Callable[[], float]) -> None:
        self._directory = directory
        self._fixed_url = fixed_url
        self._random = random
        self._known: list[Dispatcher] = []
        self._failed: set[str] = set()
        self._failures = 0

    async def choose(self) -> str:
        """The URL to try next. Raises APIError when hopeless, TransportError while there is none."""
        if self._fixed_url is not None:
            return self._fixed_url
        try:
            # Held leases run out while this waits: an API that hangs counts as one that is down.
            with trio.fail_after(LOOKUP_SECONDS):
                self._known = await self._directory.list_dispatchers()
        except trio.TooSlowError as exc:
            if not self._known:
                raise TransportError("the list of dispatchers did not come in time") from exc
        except TransportError:
            if not self._known:
                raise
        except APIError as exc:
            if is_hopeless(exc) or not self._known:
                raise
        if not self._known:
            raise ConnectionLost(1013, "no dispatcher is live")
        fresh = [each for each in self._known if each.url not in self._failed]
        if not fresh:
            self._failed.clear()
            fresh = self._known
        return min(fresh, key=lambda each: (each.sessions, self._random())).url

    def succeeded(self) -> None:
        """A session is open: the next loss starts from short pauses again."""
        self._failures = 0
        self._failed.clear()

    def lost(self, url: str | None) -> None:
        """The connection to this dispatcher failed or ended: prefer others next time."""
        if url is not None:
            self._failed.add(url)
        self._failures += 1

    def pause(self, *, at_most: float = LONGEST_PAUSE_SECONDS) -> float:
        """Seconds before the next try: doubling up to a bound, half of it at random."""
        longest = min(FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures, 10), LONGEST_PAUSE_SECONDS, at_most)
        return longest * (0.5 + 0.5 * self._random())
