"""What waits to be sent is bounded, and cut into frames."""

from __future__ import annotations

from orbit.domain import limits
from orbit.scheduler.messages import Declined
from orbit.scheduler.outbox import Outbox


def box() -> tuple[Outbox, list[None]]:
    wakes: list[None] = []
    return Outbox(lambda: wakes.append(None)), wakes


def test_frames_hold_64_messages() -> None:
    """Everything that is ready goes together, up to the protocol's bound."""
    outbox, wakes = box()
    for n in range(100):
        outbox.put(Declined(reply_to=str(n)))
    assert len(wakes) == 100
    assert [len(outbox.take()) for _ in range(3)] == [64, 36, 0]


def test_frames_split_at_768_kib() -> None:
    """One message always fits, however large."""
    outbox, _ = box()
    for size in (500, 500, 100, 900, 10):
        outbox.put(Declined(reply_to="x"), size * limits.KIB)
    assert [len(outbox.take()) for _ in range(4)] == [1, 2, 1, 1]


def test_full_above_1_mib_until_it_was_sent() -> None:
    """Bytes on their way count; room is announced once."""
    outbox, _ = box()
    told: list[None] = []
    outbox.on_room = lambda: told.append(None)
    for _ in range(3):
        outbox.put(Declined(reply_to="x"), 400 * limits.KIB)
    full = [outbox.is_full]
    outbox.take()
    full.append(outbox.is_full)
    outbox.sent()
    full.append(outbox.is_full)
    assert full == [True, True, False]
    outbox.take()
    outbox.sent()
    assert (outbox.bytes, len(told)) == (400 * limits.KIB, 1)


def test_above_8_mib_it_ends() -> None:
    """Nothing is kept for a peer that is given up."""
    outbox, _ = box()
    for _ in range(9):
        outbox.put(Declined(reply_to="x"), limits.MIB)
    assert outbox.ending is not None
    assert outbox.ending.code == 1013
    assert outbox.take() == []


def test_a_shutdown_sends_what_is_queued_a_violation_does_not() -> None:
    """1001 flushes, also what is answered meanwhile; 1008 ends at once. The first ending counts."""
    leaving, _ = box()
    leaving.put(Declined(reply_to="1"))
    leaving.end(1001, "shutting down")
    leaving.put(Declined(reply_to="2"))
    leaving.end(1008, "later")
    assert leaving.take() == [Declined(reply_to="1"), Declined(reply_to="2")]
    assert leaving.ending is not None
    assert leaving.ending.code == 1001
    violating, _ = box()
    violating.put(Declined(reply_to="1"))
    violating.end(1008, "violation")
    violating.put(Declined(reply_to="2"))
    assert violating.take() == []
