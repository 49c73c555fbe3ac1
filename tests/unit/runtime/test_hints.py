"""Hints reach live dispatchers, cost their sender nothing, and noise on their port does no harm."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest
import trio
import trio.testing

from orbit.domain.errors import Unavailable
from orbit.domain.ids import new_id
from orbit.runtime.hints import (
    Hint,
    HintKind,
    HintReceiver,
    HintSender,
    application_hash,
    decode_hint,
    encode_hint,
    hints_of,
    parse_address,
    queue_hash,
)


class Registry:
    """Stands where the database is: answers each read with the registered addresses."""

    def __init__(self, *addresses: str | None) -> None:
        self.addresses: tuple[str | None, ...] = addresses
        self.reads = 0
        self.fails = False

    async def read(self, work: Callable[[Any], Any]) -> Any:
        await trio.lowlevel.checkpoint()
        self.reads += 1
        if self.fails:
            raise Unavailable("away")
        return work(self)

    def rows(self, _sql: str) -> list[tuple[Any, ...]]:
        return [(new_id(), "ws://x", address, 0, datetime(2026, 1, 1)) for address in self.addresses]


@pytest.mark.parametrize("kind", HintKind)
def test_a_hint_is_sixteen_bytes_and_comes_back(kind: HintKind) -> None:
    hint = Hint(kind, application_hash(new_id()))
    data = encode_hint(hint)
    assert len(data) == 16
    assert decode_hint(data) == hint


def test_a_hint_names_a_few_queues_or_speaks_of_all() -> None:
    application_id, queues = new_id(), [new_id() for _ in range(5)]
    hashes = [{queue_hash(queue_id)} for queue_id in queues]
    named = [decode_hint(encode_hint(hint)) for hint in hints_of(HintKind.SUBMIT, application_id, queues[:4])]
    told = [[hint is not None and hint.concerns(one) for one in hashes] for hint in named]
    assert told == [[n == m for n in range(5)] for m in range(4)]
    for many in ([], queues):
        (of_all,) = hints_of(HintKind.SUBMIT, application_id, many)
        assert all(of_all.concerns(one) for one in hashes)


@pytest.mark.parametrize(
    "data", [b"", b"x" * 16, b"orb1" + bytes(12), b"orb1\x01" + bytes(12), b"orb2\x01" + bytes(11)]
)
def test_anything_else_is_no_hint(data: bytes) -> None:
    assert decode_hint(data) is None


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9000", ("127.0.0.1", 9000)),
        ("[::1]:9000", ("::1", 9000)),
        ("localhost:9000", None),
        ("127.0.0.1", None),
        ("127.0.0.1:0", None),
        ("127.0.0.1:70000", None),
        (":80", None),
    ],
)
def test_only_numeric_addresses_are_used(text: str, address: tuple[str, int] | None) -> None:
    assert parse_address(text) == address


async def test_the_first_hint_arrives_although_no_address_was_known_yet() -> None:
    receiver = await HintReceiver.open()
    sender = HintSender(Registry(receiver.address, None, "nonsense"))
    application_id = new_id()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender.run)
        sender.send(HintKind.SUBMIT, application_id)
        with trio.fail_after(5):
            assert await anext(receiver) == Hint(HintKind.SUBMIT, application_id[:8])
        nursery.cancel_scope.cancel()
    receiver.close()


async def test_a_hint_that_is_sent_now_waits_for_no_event_loop() -> None:
    """With addresses that are known and fresh; the first one is sent by the loop, which reads them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(5)
        sender = HintSender(Registry(f"127.0.0.1:{peer.getsockname()[1]}"))
        application_id = new_id()
        sender.send_now(HintKind.SUBMIT, application_id)  # nothing runs yet: lost, and no harm done
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sender.run)
            await trio.testing.wait_all_tasks_blocked()
            sender.send_now(HintKind.CANCEL, application_id)
            await trio.testing.wait_all_tasks_blocked()
            assert decode_hint(peer.recv(64)) == Hint(HintKind.CANCEL, application_id[:8])
            sender.send_now(HintKind.SUBMIT, application_id)
            assert decode_hint(peer.recv(64)) == Hint(HintKind.SUBMIT, application_id[:8])
            nursery.cancel_scope.cancel()
        sender.send_now(HintKind.SUBMIT, application_id)  # the sockets are closed: the same


async def test_what_is_sent_together_arrives_once_per_application_and_kind() -> None:
    receiver = await HintReceiver.open()
    registry = Registry(receiver.address)
    sender = HintSender(registry)
    application_id = new_id()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender.run)
        sender.send(HintKind.SUBMIT, application_id)
        with trio.fail_after(5):
            await anext(receiver)
        for _ in range(50):
            sender.send(HintKind.SUBMIT, application_id)
        sender.send(HintKind.CANCEL, application_id)
        with trio.fail_after(5):
            kinds = {(await anext(receiver)).kind, (await anext(receiver)).kind}
        assert kinds == {HintKind.SUBMIT, HintKind.CANCEL}
        assert registry.reads == 1
        nursery.cancel_scope.cancel()
    receiver.close()


async def test_a_paced_sender_tells_others_only_and_gathers_what_comes_meanwhile(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
    ):
        for peer in (own, other):
            peer.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{peer.getsockname()[1]}" for peer in (own, other)]
        sender = HintSender(Registry(*addresses), own=addresses[0], pace_seconds=0.5)
        application_id = new_id()
        hint = encode_hint(Hint(HintKind.RELEASE, application_id[:8]))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sender.run)
            sender.send(HintKind.RELEASE, application_id)
            await trio.sleep(0.6)
            for _ in range(4):
                sender.send(HintKind.RELEASE, application_id)
                await trio.sleep(0.1)
            await trio.sleep(1.0)
            nursery.cancel_scope.cancel()
        heard = received(other)
        assert 2 <= len(heard) <= 3
        assert set(heard) == {hint}
        assert received(own) == []


def received(peer: socket.socket) -> list[bytes]:
    """Return the datagrams that have arrived so far."""
    peer.setblocking(False)
    found: list[bytes] = []
    with suppress(BlockingIOError):
        while True:
            found.append(peer.recv(64))
    return found


async def test_noise_is_passed_over() -> None:
    receiver = await HintReceiver.open()
    host, _, port = receiver.address.rpartition(":")
    hint = Hint(HintKind.CANCEL, b"12345678")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        for data in (b"", b"noise", b"n" * 100, encode_hint(hint)):
            peer.sendto(data, (host, int(port)))
        with trio.fail_after(5):
            assert await anext(receiver) == hint
    receiver.close()


async def test_a_database_that_is_away_stops_neither_sender_nor_caller(
    autojump_clock: trio.testing.MockClock,
) -> None:
    registry = Registry("127.0.0.1:9")
    registry.fails = True
    sender = HintSender(registry)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender.run)
        for _ in range(3):
            sender.send(HintKind.SUBMIT, new_id())
            await trio.sleep(3)
        assert registry.reads == 3
        nursery.cancel_scope.cancel()
