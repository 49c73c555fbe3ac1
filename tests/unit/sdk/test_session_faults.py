"""The session core against a model of the server, with the line cut at any frame in either direction (C16, C19)."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from orbit_sdk import HandlerDeclaration, Outcome, Raw
from orbit_sdk._held import Registration, Run, Stop
from orbit_sdk._session import SessionCore
from tests.unit.sdk.peer import QUEUE_ID, Message, assignment

TASKS = 6
CAPACITY = 4


class ModelServer:
    """Grants, records and remembers every command by its id, as the contract says; leases never run out here."""

    def __init__(self) -> None:
        self.generation = 0
        self.states: dict[str, str] = {}
        self.answers: dict[str, Message] = {}
        self.applied: list[str] = []
        self.session = 0
        self.owner: dict[str, int] = {}
        self.is_open = False

    def connect(self) -> None:
        self.session += 1
        self.is_open = False

    def handle(self, message: Message) -> list[Message]:
        """The replies to one message."""
        reply = getattr(self, f"_{message['type']}")(message)
        return [{**each, "reply_to": message["id"]} if "reply_to" not in each else each for each in reply]

    def assign(self) -> list[Message]:
        """New work up to the capacity."""
        live = [a for a, state in self.states.items() if state in {"LEASED", "RUNNING"}]
        fresh: list[Message] = []
        while self.is_open and len(live) + len(fresh) < CAPACITY and len(self.states) < TASKS:
            sent = assignment(len(self.states) + 1)
            self.states[sent["attempt_id"]] = "LEASED"
            self.owner[sent["attempt_id"]] = self.session
            fresh.append({**sent, "reply_to": ""})
        return fresh

    def _hello(self, message: Message) -> list[Message]:
        self.generation += 1
        self.is_open = self.generation == 1
        return [
            {"type": "welcome", "session_id": "s", "generation": self.generation, "lease_ms": 30000, "renew_ms": 10000}
        ]  # fmt: skip

    def _resume(self, message: Message) -> list[Message]:
        self.is_open = True
        answers = []
        for attempt in message["attempts"]:
            state = self.states[attempt["attempt_id"]]
            is_owned = state in {"LEASED", "RUNNING"}
            if is_owned:
                self.owner[attempt["attempt_id"]] = self.session
            answers.append({**attempt, "owned": is_owned, "state": state, "lease_ms": 30000})
        again = [
            {**assignment(int(attempt, 16) - 0xA000), "reply_to": ""}
            for attempt, state in self.states.items()
            if state == "LEASED" and self.owner[attempt] != self.session
        ]
        for each in again:
            self.owner[each["attempt_id"]] = self.session
        return [{"type": "resumed", "attempts": answers}, *again]

    def _start(self, message: Message) -> list[Message]:
        return self._once(message, "LEASED", "RUNNING", {"type": "started", "lease_ms": 30000})

    def _result(self, message: Message) -> list[Message]:
        answer = {"type": "recorded", "task_state": "SUCCEEDED", "disposition": "APPLIED"}
        if message["id"] not in self.answers:
            self.applied.append(message["attempt_id"])
        return self._once(message, "RUNNING", "SUCCEEDED", answer)

    def _renew(self, message: Message) -> list[Message]:
        answers = []
        for attempt in message["attempts"]:
            is_ok = (
                self.states[attempt["attempt_id"]] in {"LEASED", "RUNNING"}
                and self.owner[attempt["attempt_id"]] == self.session
            )
            answers.append({**attempt, "ok": is_ok, "lease_ms": 30000})
        return [{"type": "renewed", "attempts": answers}]

    def _once(self, message: Message, before: str, after: str, answer: Message) -> list[Message]:
        attempt = message["attempt_id"]
        if message["id"] not in self.answers:
            assert self.states[attempt] == before, (message, self.states[attempt])
            assert self.owner[attempt] == self.session
            self.states[attempt] = after
            self.answers[message["id"]] = answer
        return [self.answers[message["id"]]]


class Line:
    """Carries frames both ways, one at a time, until it is cut."""

    def __init__(self, core: SessionCore, server: ModelServer) -> None:
        self.core, self.server = core, server
        self.to_server: list[list[Message]] = []
        self.to_worker: list[list[Message]] = []
        self.running: list[str] = []
        self.runs: list[str] = []
        self.now = 0.0
        self.reconnect()

    def reconnect(self) -> None:
        self.to_server, self.to_worker = [], []
        self.core.connect()
        self.server.connect()

    def step(self, choice: random.Random) -> None:
        """One thing happens: a frame travels, a handler ends, or time passes."""
        while (frame := self.core.next_frame()) is not None:
            decoded = json.loads(frame)
            self.to_server.append(decoded if isinstance(decoded, list) else [decoded])
        moves = [self._pass_time]
        if self.to_server:
            moves += [self._serve] * 4
        if self.to_worker:
            moves += [self._deliver] * 4
        if self.running:
            moves += [self._finish] * 2
        choice.choice(moves)()

    def _serve(self) -> None:
        replies = [reply for message in self.to_server.pop(0) for reply in self.server.handle(message)]
        self.to_worker.append(replies + self.server.assign())

    def _deliver(self) -> None:
        messages = [{k: v for k, v in each.items() if v != ""} for each in self.to_worker.pop(0)]
        for action in self.core.receive(json.dumps(messages), self.now) if messages else []:
            assert not isinstance(action, Stop)
            if isinstance(action, Run):
                self.running.append(action.held.ref.attempt_id)
                self.runs.append(action.held.ref.attempt_id)

    def _finish(self) -> None:
        self.core.finish(self.running.pop(0), Outcome("SUCCEEDED", Raw(b"1")))

    def _pass_time(self) -> None:
        self.now += 3
        self.core.tick(self.now)


def build() -> tuple[Line, ModelServer]:
    registration = Registration(
        worker_id="ab" * 16,
        sdk="test",
        queues=(QUEUE_ID,),
        handlers=(HandlerDeclaration("object.update", "v1"),),
        capacity=CAPACITY,
        concurrency_keys=True,
    )
    server = ModelServer()
    return Line(SessionCore(registration, random=lambda: 0.5), server), server


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(1, 25), max_size=8))
def test_wherever_the_line_is_cut_everything_runs_once_and_is_recorded_once(
    seed: int, cuts: list[int]
) -> None:
    """No start, result or acknowledgement can be lost in a way that reruns, doubles or forgets a task."""
    choice = random.Random(seed)
    line, server = build()
    for steps in cuts:
        for _ in range(steps):
            line.step(choice)
        line.core.disconnect()
        line.reconnect()
    for _ in range(2000):
        if len(server.applied) == TASKS and line.core.is_idle:
            break
        line.step(choice)
    assert sorted(server.applied) == sorted(server.states)
    assert len(server.states) == TASKS
    assert sorted(line.runs) == sorted(server.states)
    assert line.core.is_idle


def test_the_model_would_notice_a_second_identity() -> None:
    """A result under another id is a double report: the model refuses it, so the property above can fail."""
    _, server = build()
    server.states["x"], server.owner["x"] = "SUCCEEDED", 0
    message: dict[str, Any] = {"type": "result", "id": "other", "attempt_id": "x"}
    try:
        server.handle(message)
    except AssertionError:
        return
    raise AssertionError("the model took a second report")
