"""The book of a worker session: held attempts, the one unanswered command of each, and what waits to be sent."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from itertools import count

from orbit_sdk._frames import encode_frame
from orbit_sdk._held import Held, Phase
from orbit_sdk._messages import ClientMessage, Decline, Result, Start


class Book:
    """Keeps commands by their ids across connections; only while `is_open` are they handed over to be sent."""

    def __init__(self, id_prefix: str) -> None:
        self.held: dict[str, Held] = {}
        self.is_open = False
        # Attempts that wait for leave to run; together with running handlers they fill the capacity.
        self.offered = 0
        # Renewal periods so far: the coarse clock by which an unanswered command is old.
        self.round = 0
        self._urgent: deque[ClientMessage] = deque()
        self._outgoing: deque[ClientMessage] = deque()
        self._by_command: dict[str, Held] = {}
        self._later: list[tuple[float, int, str]] = []
        self._numbers = count(1)
        self._id_prefix = id_prefix

    def new_id(self) -> str:
        """A message id that this worker has not used."""
        return f"{self._id_prefix}-{next(self._numbers):x}"

    # --- frames

    def send_first(self, message: ClientMessage) -> None:
        """Send before all commands: hello, resume, renew, drain."""
        self._urgent.append(message)

    def next_frame(self) -> str | None:
        """The next frame to send, None when there is nothing."""
        if self._urgent:
            return encode_frame(self._urgent)
        if self._outgoing:
            return encode_frame(self._outgoing)
        return None

    def close(self) -> None:
        """The connection is gone: nothing is on its way, the commands stay."""
        self.is_open = False
        self._urgent.clear()
        self._outgoing.clear()
        self._later.clear()

    def open(self) -> None:
        """A session is open: repeat every command that is unanswered."""
        self.is_open = True
        for held in self.held.values():
            self._hand_over(held)

    # --- commands

    def add(self, held: Held, *, is_offered: bool) -> None:
        """Hold an attempt, as offered or as already started."""
        self.held[held.ref.attempt_id] = held
        if is_offered:
            self.offered += 1
        else:
            held.phase = Phase.RUNNING

    def move(self, held: Held, phase: Phase) -> None:
        """Take an attempt to its next phase; its last command is settled by that."""
        if held.phase is Phase.OFFERED and phase is not Phase.OFFERED:
            self.offered -= 1
        self._settle(held)
        held.phase = phase

    def drop(self, held: Held) -> None:
        """Hold an attempt no longer."""
        if held.phase is Phase.OFFERED:
            self.offered -= 1
        self._settle(held)
        self.held.pop(held.ref.attempt_id, None)

    def command(self, held: Held, command: Start | Result | Decline) -> None:
        """Give a held attempt its command, to be repeated under its id until it is settled."""
        held.command = command
        held.in_doubt = False
        self._by_command[command.id] = held
        if self.is_open:
            self._hand_over(held)

    def find(self, reply_to: str | None) -> Held | None:
        """The attempt whose unsettled command has this id."""
        return None if reply_to is None else self._by_command.get(reply_to)

    def repeat_at(self, held: Held, due: float) -> None:
        """Send the command again at this time."""
        assert held.command is not None
        heapq.heappush(self._later, (due, next(self._numbers), held.command.id))

    def next_repeat(self) -> float:
        """When the next repeat is due; `inf` if none is."""
        return self._later[0][0] if self._later else float("inf")

    def due_repeats(self, now: float) -> Iterator[Held]:
        """The attempts whose command is to be sent again by now and still waits for an answer."""
        while self._later and self._later[0][0] <= now:
            held = self._by_command.get(heapq.heappop(self._later)[2])
            if held is not None and self.is_open:
                yield held

    def repeat(self, held: Held) -> None:
        """Send the command again now."""
        self._hand_over(held)

    def repeat_silent(self, rounds: int) -> None:
        """Ask again what stayed unanswered for more than so many rounds, unless the line is busy anyway."""
        if self._outgoing:
            return
        for held in self.held.values():
            if held.in_doubt and self.round - held.sent_round > rounds:
                self._hand_over(held)

    def _hand_over(self, held: Held) -> None:
        if held.command is not None:
            self._outgoing.append(held.command)
            held.in_doubt = True
            held.sent_round = self.round

    def _settle(self, held: Held) -> None:
        if held.command is not None:
            self._by_command.pop(held.command.id, None)
            held.command = None
        held.in_doubt = False
