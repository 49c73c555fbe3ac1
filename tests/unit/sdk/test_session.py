"""The session core alone: messages and clock readings in, frames and actions out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orbit_sdk import Dispatcher, HandlerDeclaration, Raw, SessionRefused
from orbit_sdk._dialer import LONGEST_PAUSE_SECONDS, Dialer
from orbit_sdk._held import Action, AskCancel, Note, Ready, Reconnect, Registration, Run, Stop, StopReason
from orbit_sdk._outcomes import Outcome
from orbit_sdk._session import SessionCore
from tests.unit.sdk.peer import QUEUE_ID, Message, assignment

DONE = Outcome("SUCCEEDED", Raw(b"1"))


class Line:
    """A core and the far end of its connection, without any I/O."""

    def __init__(self, *, capacity: int = 4, cancel_on_lapse: bool = False) -> None:
        registration = Registration(
            worker_id="ab" * 16,
            sdk="test",
            queues=(QUEUE_ID,),
            handlers=(HandlerDeclaration("object.update", "v1"), HandlerDeclaration("once", "v1", "ONCE")),
            capacity=capacity,
            concurrency_keys=True,
        )
        self.core = SessionCore(registration, random=lambda: 1.0, cancel_on_lapse=cancel_on_lapse)
        self.now = 0.0

    def sent(self) -> list[Message]:
        """All messages that are ready to go."""
        found: list[Message] = []
        while (frame := self.core.next_frame()) is not None:
            decoded = json.loads(frame)
            found += decoded if isinstance(decoded, list) else [decoded]
        return found

    def one(self) -> Message:
        [message] = self.sent()
        return message

    def receive(self, *messages: Message) -> list[Action]:
        return self.core.receive(json.dumps(list(messages)), self.now)

    def tick(self, now: float) -> list[Action]:
        self.now = now
        return self.core.tick(now)

    def open(self, *, generation: int = 1, renew_ms: int = 10_000) -> list[Action]:
        """Connect and be welcomed; with a later generation the resume is still to be answered."""
        self.core.connect()
        hello = self.one()
        return self.receive(
            {
                "type": "welcome",
                "reply_to": hello["id"],
                "session_id": "s",
                "generation": generation,
                "lease_ms": 30_000,
                "renew_ms": renew_ms,
            }
        )

    def resumed(self, **owned: Any) -> list[Action]:
        """Answer the pending resume: all attempts with these fields, `owned` true unless given."""
        resume = self.one()
        assert resume["type"] == "resume"
        fields = {"owned": True, "state": "RUNNING", "lease_ms": 30_000, "cancel_requested": False, **owned}
        attempts = [{**attempt, **fields} for attempt in resume["attempts"]]
        return self.receive({"type": "resumed", "reply_to": resume["id"], "attempts": attempts})

    def run_one(self, number: int = 1, **fields: Any) -> str:
        """Assign and start one attempt; its id."""
        self.receive(assignment(number, **fields))
        start = self.one()
        assert start["type"] == "start"
        [action] = self.receive({"type": "started", "reply_to": start["id"], "lease_ms": 30_000})
        assert isinstance(action, Run)
        return str(start["attempt_id"])


def refused(message: Message, code: str, retry_after_ms: int | None = None) -> Message:
    fields = {} if retry_after_ms is None else {"retry_after_ms": retry_after_ms}
    return {"type": "refused", "reply_to": message["id"], "code": code, "message": "", **fields}


def error(message: Message, code: str, retry_after_ms: int | None = None) -> Message:
    return {**refused(message, code, retry_after_ms), "type": "error"}


def test_nothing_but_hello_is_sent_before_the_welcome() -> None:
    """The first session opens with the welcome; a later one only with the answer to resume."""
    line = Line()
    line.core.connect()
    assert line.one()["type"] == "hello"
    line = Line()
    assert line.open() == [Ready()]
    line = Line()
    assert line.open(generation=2) == []
    assert line.resumed() == [Ready()]


def test_a_rate_limited_start_is_repeated_under_its_id() -> None:
    """At the time that the server named, as often as it says so, within one lease."""
    line = Line()
    line.open()
    line.receive(assignment())
    start = line.one()
    line.receive(refused(start, "RATE_LIMITED", 700))
    assert line.core.next_tick() == pytest.approx(0.7)
    line.tick(0.69)
    assert line.sent() == []
    line.tick(0.71)
    assert line.one() == start
    line.receive({"type": "started", "reply_to": start["id"], "lease_ms": 1})
    line.receive(refused(start, "RATE_LIMITED", 700))
    line.tick(5)
    assert line.sent() == []


def test_a_start_that_cannot_come_within_the_lease_is_declined_busy() -> None:
    """A paused queue does not hold the worker's place for ever, renewals or not."""
    line = Line()
    line.open()
    line.receive(assignment(lease_ms=1000))
    start = line.one()
    line.receive(refused(start, "QUEUE_PAUSED", 1500))
    decline = line.one()
    assert (decline["type"], decline["reason"]) == ("decline", "BUSY")
    assert decline["id"] != start["id"]
    line.receive({"type": "declined", "reply_to": decline["id"]})
    assert line.core.is_idle


def test_an_offer_whose_lease_lapsed_while_waiting_is_dropped() -> None:
    """Nothing was started, so there is nothing to say."""
    line = Line()
    line.open()
    line.receive(assignment(lease_ms=1000))
    line.receive(refused(line.one(), "RATE_LIMITED", 900))
    line.tick(2.0)
    assert line.sent() == []
    assert line.core.is_idle


@pytest.mark.parametrize("code", ["CANCELLED", "DEADLINE_EXCEEDED", "STALE_ATTEMPT"])
def test_a_refused_start_drops_the_attempt(code: str) -> None:
    """No handler runs, no renewal is sent."""
    line = Line()
    line.open()
    line.receive(assignment())
    line.receive(refused(line.one(), code))
    assert line.core.is_idle
    line.tick(60)
    assert line.sent() == []


def test_an_unavailable_start_stays_in_doubt() -> None:
    """It may have been granted: it is repeated beyond the lease and never declined, even while draining."""
    line = Line()
    line.open()
    line.receive(assignment(lease_ms=1000))
    start = line.one()
    line.receive(error(start, "UNAVAILABLE", 2000))
    line.core.drain()
    assert [each["type"] for each in line.sent()] == ["drain"]
    line.tick(2.5)
    assert line.one() == start
    [action] = line.receive({"type": "started", "reply_to": start["id"], "lease_ms": 1000})
    assert isinstance(action, Run)


def test_a_result_waits_for_its_acknowledgement() -> None:
    """Unavailable, cut, unanswered: the same message until one answer settles it."""
    line = Line()
    line.open()
    attempt = line.run_one()
    line.core.finish(attempt, DONE)
    result = line.one()
    line.receive(error(result, "UNAVAILABLE", 100))
    line.tick(0.2)
    assert line.one() == result
    line.core.disconnect()
    line.open(generation=2)
    line.resumed()
    assert line.one() == result
    assert not line.core.is_idle
    line.receive(
        {"type": "recorded", "reply_to": result["id"], "task_state": "SUCCEEDED", "disposition": "DUPLICATE"}
    )
    assert line.core.is_idle


def test_a_command_that_stays_unanswered_is_asked_again_on_the_same_connection() -> None:
    """After some renewal periods; the id makes that harmless."""
    line = Line()
    line.open()
    line.receive(assignment())
    start = line.one()
    again: list[Message] = []
    for now in (10, 20, 30, 40):
        line.tick(now)
        again += [each for each in line.sent() if each["type"] == "start"]
    assert again == [start]


def test_a_stale_renewal_cancels_a_running_handler_but_no_report() -> None:
    """The result of a finished handler may be recorded already; only its own answer settles it."""
    line = Line()
    line.open()
    running, reporting = line.run_one(1), line.run_one(2)
    line.core.finish(reporting, DONE)
    result = line.one()
    line.tick(10)
    renew = line.one()
    assert {each["attempt_id"] for each in renew["attempts"]} == {running, reporting}
    lost = [{**each, "ok": False, "code": "STALE_ATTEMPT"} for each in renew["attempts"]]
    actions = line.receive({"type": "renewed", "reply_to": renew["id"], "attempts": lost})
    assert actions == [Stop(running, StopReason.LOST)]
    line.core.finish(running, DONE)
    assert line.sent() == []
    line.core.disconnect()
    line.open(generation=2)
    line.resumed(owned=False)
    assert line.one() == result


def test_an_epoch_of_the_past_decides_nothing() -> None:
    """A late answer about an earlier attempt of the same id is ignored."""
    line = Line()
    line.open()
    attempt = line.run_one()
    stale = {"attempt_id": attempt, "epoch": "9", "ok": False, "code": "STALE_ATTEMPT"}
    assert line.receive({"type": "renewed", "reply_to": "r", "attempts": [stale]}) == []


def test_running_work_survives_a_reconnect_and_learns_of_a_cancel() -> None:
    """Owned attempts go on; a cancel request of the meantime arrives with resumed."""
    line = Line()
    line.open()
    attempt = line.run_one()
    line.core.disconnect()
    line.open(generation=2)
    assert line.resumed(cancel_requested=True) == [AskCancel(attempt), Ready()]
    assert line.sent() == []


def test_tries_to_connect_come_within_a_renewal_period_while_leases_run_out() -> None:
    """Idle, the pauses grow to their own bound; with something held, never beyond what a lease has to spare."""

    class Nobody:
        async def list_dispatchers(self) -> list[Dispatcher]:
            return []

    dialer = Dialer(Nobody(), fixed_url=None, random=lambda: 1.0)
    for _ in range(20):
        dialer.lost(None)
    line = Line()
    line.open(renew_ms=700)
    assert dialer.pause(at_most=line.core.patience) == LONGEST_PAUSE_SECONDS
    line.run_one()
    line.core.disconnect()
    assert dialer.pause(at_most=line.core.patience) == 0.7


def test_a_start_in_doubt_is_repeated_after_resume_or_dropped_if_lost() -> None:
    """Whether it was granted before the cut only the same id can tell."""
    line = Line()
    line.open()
    line.receive(assignment())
    start = line.one()
    line.core.disconnect()
    line.open(generation=2)
    line.resumed(state="LEASED")
    assert line.one() == start
    line.core.disconnect()
    line.open(generation=3)
    line.resumed(owned=False)
    assert line.sent() == []
    assert line.core.is_idle


def test_an_attempt_that_is_sent_again_is_not_taken_twice() -> None:
    """After a reconnect the server repeats what it believes to be unknown here."""
    line = Line()
    line.open()
    line.run_one()
    assert line.receive(assignment(lease_ms=1)) == []
    assert line.sent() == []


def test_results_do_not_hold_up_renewals() -> None:
    """With thousands of bytes waiting the next frame is the renewal."""
    line = Line(capacity=500)
    line.open()
    attempts = [line.run_one(n) for n in range(1, 201)]
    for attempt in attempts[:-1]:
        line.core.finish(attempt, Outcome("SUCCEEDED", Raw(b'"' + b"x" * 100_000 + b'"')))
    first = line.core.next_frame()
    assert first is not None
    assert len(first) < 768 * 1024
    line.tick(10)
    renew = json.loads(line.core.next_frame() or "")
    assert renew["type"] == "renew"
    assert len(renew["attempts"]) == 200
    frames = []
    while (frame := line.core.next_frame()) is not None:
        frames.append(frame)
    assert all(len(frame) < 768 * 1024 for frame in frames)
    assert sum(len(json.loads(frame)) for frame in [first, *frames]) == 199


def test_a_large_output_always_fits_a_frame() -> None:
    """One message of the greatest size goes out alone."""
    line = Line()
    line.open()
    attempts = [line.run_one(number) for number in range(1, 4)]
    for attempt in attempts:
        line.core.finish(attempt, Outcome("SUCCEEDED", Raw(b'"' + b"1" * 500_000 + b'"')))
    sizes = []
    while (frame := line.core.next_frame()) is not None:
        sizes.append(len(frame))
    assert len(sizes) == 3
    assert max(sizes) < 1024 * 1024


def test_over_capacity_and_unknown_handlers_are_declined() -> None:
    """The server counts too, but a lost handler that still winds down takes a place here only."""
    line = Line(capacity=1)
    line.open()
    attempt = line.run_one()
    line.receive(assignment(2))
    assert line.one()["reason"] == "BUSY"
    lost = {"attempt_id": attempt, "epoch": "1", "ok": False, "code": "STALE_ATTEMPT"}
    line.receive({"type": "renewed", "reply_to": "r", "attempts": [lost]})
    line.receive(assignment(3))
    assert line.one()["reason"] == "BUSY"
    line.core.finish(attempt, DONE)
    line.receive(assignment(4, task_handler="unheard"))
    assert line.one()["reason"] == "UNSUPPORTED"
    line.receive(assignment(5))
    assert line.one()["type"] == "start"


def test_an_eager_start_runs_at_once() -> None:
    """An assignment that is marked started needs no start, and counts the task's deadline as its own."""
    line = Line(capacity=1)
    line.open()
    line.run_one()
    [action] = line.receive(assignment(2, started=True, task_deadline_ms=500))
    assert isinstance(action, Run)
    assert action.deadline == pytest.approx(0.5)
    assert line.sent() == []
    line.receive(assignment(3, started=True, task_handler="unheard"))
    assert line.one()["outcome"] == "RETRY"


def test_a_refused_output_becomes_a_failure_or_unknown_for_once() -> None:
    """The effect has happened, so a rerun would be wrong; the report has a new identity."""
    for handler, outcome in (("object.update", "FAILED"), ("once", "UNKNOWN")):
        line = Line()
        line.open()
        line.core.finish(line.run_one(task_handler=handler), DONE)
        result = line.one()
        line.receive(error(result, "INVALID_ARGUMENT"))
        second = line.one()
        assert (second["outcome"], second["error"]["code"]) == (outcome, "OUTPUT_INVALID")
        assert second["id"] != result["id"]


def test_a_result_that_is_refused_for_good_is_given_up_with_a_note() -> None:
    """STALE_ATTEMPT, STATE_CONFLICT and the like cannot change."""
    line = Line()
    line.open()
    line.core.finish(line.run_one(), DONE)
    [note] = line.receive(error(line.one(), "STATE_CONFLICT"))
    assert isinstance(note, Note)
    assert line.core.is_idle


def test_refused_hello_and_resume() -> None:
    """An outage means another try, anything else about hello is final."""
    line = Line()
    line.core.connect()
    [action] = line.receive(error(line.one(), "UNAVAILABLE", 50))
    assert isinstance(action, Reconnect)
    line.core.connect()
    hello = line.one()
    with pytest.raises(SessionRefused):
        line.receive(error(hello, "STATE_CONFLICT"))
    line = Line()
    line.open(generation=2)
    [action] = line.receive(error(line.one(), "UNAVAILABLE", 50))
    assert isinstance(action, Reconnect)


def test_a_failed_renewal_is_tried_again_soon() -> None:
    """The leases run on while the database is away."""
    line = Line()
    line.open()
    line.run_one()
    line.tick(10)
    renew = line.one()
    line.receive(error(renew, "UNAVAILABLE", 300))
    assert line.core.next_tick() == pytest.approx(10.3)


def test_leases_lapse_silently_unless_asked_for() -> None:
    """The local clock alone cancels nothing; with cancel_on_lapse it does, once."""
    line = Line()
    line.open()
    line.run_one()
    line.core.disconnect()
    assert line.tick(1000) == []
    line = Line(cancel_on_lapse=True)
    line.open()
    attempt = line.run_one()
    line.core.disconnect()
    assert line.core.next_tick() == pytest.approx(30)
    assert line.tick(31) == [Stop(attempt, StopReason.LEASE_LAPSED)]
    assert line.tick(32) == []
    assert line.core.next_tick() == float("inf")


def test_drain_is_repeated_on_the_next_connection() -> None:
    """A new session does not know that the worker is leaving."""
    line = Line()
    line.open()
    attempt = line.run_one()
    line.core.drain()
    line.core.drain()
    assert [each["type"] for each in line.sent()] == ["drain"]
    line.core.disconnect()
    line.open(generation=2)
    line.resumed()
    assert [each["type"] for each in line.sent()] == ["drain"]
    line.core.finish(attempt, DONE)
    assert line.one()["type"] == "result"


def test_a_thousand_held_attempts_resume_in_bounded_messages() -> None:
    """At most 1,000 attempts per message, those in progress first."""
    line = Line(capacity=1000)
    line.open()
    for number in range(1, 1001):
        line.run_one(number)
    for number in range(1, 301):
        line.core.finish(f"{number + 0xA000:032x}", DONE)
    line.sent()
    for number in range(1001, 1301):
        line.run_one(number)
    line.core.disconnect()
    line.open(generation=2)
    resumes = line.sent()
    assert [len(each["attempts"]) for each in resumes] == [1000, 300]
    assert all(int(each["attempt_id"], 16) > 300 + 0xA000 for each in resumes[0]["attempts"])
    assert line.receive({"type": "resumed", "reply_to": resumes[1]["id"], "attempts": []}) == []
    assert Ready() in line.receive({"type": "resumed", "reply_to": resumes[0]["id"], "attempts": []})
