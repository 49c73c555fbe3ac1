"""Strict frames (F35): whatever breaks the protocol ends its connection with 1008, and nothing else."""

from __future__ import annotations

import json

import pytest

from orbit.scheduler.service import Service
from tests.support.frames import connected, ref
from tests.support.pulse import Pulse
from tests.support.tenants import Tenant

BAD_FRAMES = {
    "truncated": '{"type":"drain","id":"1"',
    "trailing": '{"type":"drain","id":"1"} x',
    "empty": "",
    "scalar": "1",
    "null": "null",
    "empty array": "[]",
    "too many": json.dumps([{"type": "drain", "id": "1"}] * 65),
    "array in array": '[[{"type":"drain","id":"1"}]]',
    "NaN": '{"type":"renew","id":"1","attempts":NaN}',
    "BOM": '\ufeff{"type":"drain","id":"1"}',
    "repeated name": '{"type":"drain","id":"1","id":"1"}',
    "repeated name inside": '{"type":"result","id":"1","attempt_id":"%s","epoch":"1","outcome":"SUCCEEDED",'
    '"output":{"a":1,"a":2}}' % ("0" * 32),
    "lone surrogate": '{"type":"result","id":"1","attempt_id":"%s","epoch":"1","outcome":"SUCCEEDED",'
    '"output":"\\ud800"}' % ("0" * 32),
    "unknown field": '{"type":"drain","id":"1","more":1}',
    "other case": '{"type":"drain","ID":"1"}',
    "null field": '{"type":"start","id":"1","attempt_id":null,"epoch":"1"}',
    "unknown type": '{"type":"dance","id":"1"}',
    "no type": '{"id":"1"}',
    "server's type": '{"type":"welcome","id":"1"}',
    "no id": '{"type":"drain"}',
    "blank in id": '{"type":"drain","id":"a b"}',
    "newline after id": '{"type":"drain","id":"a\\n"}',
    "long id": '{"type":"drain","id":"%s"}' % ("x" * 65),
    "upper-case attempt": '{"type":"start","id":"1","attempt_id":"%s","epoch":"1"}' % ("A" * 32),
    "epoch as number": '{"type":"start","id":"1","attempt_id":"%s","epoch":1}' % ("0" * 32),
    "epoch zero": '{"type":"start","id":"1","attempt_id":"%s","epoch":"0"}' % ("0" * 32),
    "unknown outcome": '{"type":"result","id":"1","attempt_id":"%s","epoch":"1","outcome":"DONE"}'
    % ("0" * 32),
    "deep": '{"type":"result","id":"1","attempt_id":"%s","epoch":"1","outcome":"SUCCEEDED","output":'
    % ("0" * 32)
    + "[" * 100
    + "]" * 100
    + "}",
    "very deep": "[" * 200_000,
}


@pytest.mark.parametrize("frame", BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
async def test_a_bad_frame_ends_the_connection(service: Service, tenant: Tenant, frame: str) -> None:
    """1008 with a reason that names the field; a connection beside it doesn't notice."""
    async with connected(service.url, tenant) as beside, connected(service.url, tenant) as worker:
        await beside.welcome()
        await worker.welcome()
        await worker.socket.send_message(frame)
        ending = await worker.closing(5.0)
        assert ending.code == 1008
        assert ending.reason
        assert (await beside.ask("renew", attempts=[]))["type"] == "renewed"


async def test_binary_frames_are_refused(service: Service, tenant: Tenant) -> None:
    """The protocol is text."""
    async with connected(service.url, tenant) as worker:
        await worker.welcome()
        await worker.socket.send_message(b'{"type":"drain","id":"1"}')
        assert (await worker.closing(5.0)).code == 1008


async def test_a_frame_too_large_is_closed_with_1009(service: Service, tenant: Tenant) -> None:
    """The limit is 1 MiB, told in the welcome."""
    async with connected(service.url, tenant) as worker:
        welcome = await worker.welcome()
        assert welcome["limits"]["frame_bytes"] == 1024 * 1024
        await worker.socket.send_message('{"type":"drain","id":"1"}' + " " * (1024 * 1024))
        assert (await worker.closing(5.0)).code == 1009


async def test_commands_before_the_welcome_are_a_violation(service: Service, tenant: Tenant) -> None:
    """Nothing but hello opens a session, and only once."""
    async with connected(service.url, tenant) as worker:
        await worker.say("drain")
        assert (await worker.closing(5.0)).code == 1008
    async with connected(service.url, tenant) as worker:
        await worker.welcome()
        await worker.send(worker.hello())
        assert (await worker.closing(5.0)).code == 1008


async def test_a_frame_of_64_messages_is_one_group(service: Service, tenant: Tenant, pulse: Pulse) -> None:
    """Starts and results travel in arrays, both ways."""
    pulse.submit_many(64)
    async with connected(service.url, tenant) as worker:
        await worker.welcome(capacity=64)
        held = await worker.many("task.assign", 64)
        before = worker.frames
        starts = [{"type": "start", "id": f"s{n}", **ref(one)} for n, one in enumerate(held)]
        await worker.send(*starts)
        for start in starts:
            assert (await worker.reply(start["id"]))["type"] == "started"
        results = [
            {"type": "result", "id": f"r{n}", **ref(one), "outcome": "SUCCEEDED"}
            for n, one in enumerate(held)
        ]
        await worker.send(*results)
        for result in results:
            assert (await worker.reply(result["id"]))["disposition"] == "APPLIED"
        assert worker.frames - before <= 4
