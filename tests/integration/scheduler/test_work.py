"""Work over the wire: from hello to the recorded result."""

from __future__ import annotations

import itertools
import json
import socket
from typing import Any

import pytest
import trio

from orbit.domain.ids import id_text
from orbit.pulse.commands import ClaimTasks
from orbit.runtime.hints import Hint, HintKind, application_hash, encode_hint, hints_of, parse_address
from orbit.scheduler.service import Service
from orbit.store.session import Session
from orbit.store.sql.dispatcher_lists import select_live_dispatchers
from tests.integration.scheduler.conftest import MakeService
from tests.support.frames import connected, ref
from tests.support.pulse import HANDLER, Pulse
from tests.support.tenants import QueueLimits, Tenant, TenantMaker, make_queue


async def test_a_task_is_assigned_started_and_finished(
    service: Service, tenant: Tenant, pulse: Pulse
) -> None:
    """The assignment carries the task as submitted; each command gets its documented reply."""
    task_id = pulse.submit(
        payload=b'{"n":1.10,"s":"\\u00e9"}', business_key="b", concurrency_key="k", priority=3
    )
    async with connected(service.url, tenant) as worker:
        welcome = await worker.welcome()
        assert welcome["generation"] == 1
        assert (welcome["lease_ms"], welcome["renew_ms"]) == (3_000, 1_000)
        assignment = await worker.next("task.assign")
        assert assignment["task"]["id"] == id_text(task_id)
        assert assignment["task"]["payload"] == {"n": 1.1, "s": "é"}
        assert assignment["concurrency_token"] == "1"
        assert (assignment["task"]["priority"], assignment["task"]["attempt_number"]) == (3, 1)
        started = await worker.start(assignment)
        assert started["type"] == "started"
        assert 0 < started["lease_ms"] <= 3_000
        recorded = await worker.finish(assignment, output={"ok": True})
        assert (recorded["task_state"], recorded["disposition"]) == ("SUCCEEDED", "APPLIED")
    assert pulse.task(task_id).state == "SUCCEEDED"
    assert json.loads(pulse.row("attempt_outputs", task_id=task_id).output) == {"ok": True}
    assert ref(assignment)["epoch"] == "1"


async def test_repeated_ids_get_the_stored_answer(service: Service, tenant: Tenant, pulse: Pulse) -> None:
    """F6, F7: a Start and a result under the same id are counted once; other content under it is refused."""
    task_id = pulse.submit()
    async with connected(service.url, tenant) as worker:
        await worker.welcome()
        assignment = await worker.next("task.assign")
        start = {"type": "start", "id": "start-1", **ref(assignment)}
        await worker.send(start, start)
        assert [(await worker.reply("start-1"))["type"] for _ in range(2)] == ["started", "started"]
        assert pulse.task(task_id).attempts_used == 1
        result = {"type": "result", "id": "result-1", **ref(assignment), "outcome": "SUCCEEDED", "output": 1}
        await worker.send(result, result)
        answers = [await worker.reply("result-1") for _ in range(2)]
        assert [answer["disposition"] for answer in answers] == ["APPLIED", "DUPLICATE"]
        await worker.send({**result, "output": 2})
        assert (await worker.reply("result-1"))["code"] == "IDEMPOTENCY_CONFLICT"


async def test_a_result_without_start_is_a_conflict(service: Service, tenant: Tenant, pulse: Pulse) -> None:
    """The attempt stays; after its Start the result counts."""
    pulse.submit()
    async with connected(service.url, tenant) as worker:
        await worker.welcome()
        assignment = await worker.next("task.assign")
        assert (await worker.finish(assignment))["code"] == "STATE_CONFLICT"
        await worker.start(assignment)
        assert (await worker.finish(assignment))["disposition"] == "APPLIED"


async def test_failure_retry_and_unknown(service: Service, tenant: Tenant, pulse: Pulse) -> None:
    """Each outcome leads to its state; what a worker says about a failure is cut so that it can be stored."""
    wanted = {"FAILED": "FAILED", "RETRY": "FAILED", "UNKNOWN": "NEEDS_REVIEW"}
    async with connected(service.url, tenant) as worker:
        await worker.welcome()
        for outcome, state in wanted.items():
            task_id = pulse.submit()
            assignment = await worker.next("task.assign")
            await worker.start(assignment)
            error = {"code": "E" * 100, "message": "é" * 5_000}
            recorded = await worker.finish(assignment, outcome, error=error)
            assert recorded["task_state"] == state
            assert pulse.task(task_id).error_code == "E" * 64


async def test_rules_across_fields_are_refused_not_fatal(
    service: Service, tenant: Tenant, pulse: Pulse
) -> None:
    """An output with FAILED, a missing error, an unexpected delay, poll: refused by name, the session goes on."""
    pulse.submit()
    async with connected(service.url, tenant) as worker:
        await worker.welcome()
        assignment = await worker.next("task.assign")
        await worker.start(assignment)
        error = {"code": "E", "message": "m"}
        for outcome, fields, name in (
            ("FAILED", {"output": 1, "error": error}, "output"),
            ("FAILED", {}, "error"),
            ("SUCCEEDED", {"error": error}, "error"),
            ("SUCCEEDED", {"retry_after_ms": 1}, "retry_after_ms"),
            ("SUCCEEDED", {"poll": "DONE"}, "poll"),
        ):
            answer = await worker.finish(assignment, outcome, **fields)
            assert answer["code"] == "INVALID_ARGUMENT"
            assert answer["message"].startswith(name)
        large = await worker.finish(assignment, output="x" * (256 * 1024))
        assert large["code"] == "PAYLOAD_TOO_LARGE"
        assert (await worker.finish(assignment, output="x" * (256 * 1024 - 2)))["disposition"] == "APPLIED"


async def test_declined_work_comes_back(service: Service, tenant: Tenant, pulse: Pulse) -> None:
    """BUSY: the same task a second later under the next epoch, no attempt used."""
    pulse.submit()
    async with connected(service.url, tenant) as worker:
        await worker.welcome()
        first = await worker.next("task.assign")
        assert (await worker.ask("decline", **ref(first), reason="BUSY"))["type"] == "declined"
        second = await worker.next("task.assign")
        assert second["task"]["id"] == first["task"]["id"]
        assert (second["epoch"], second["task"]["attempt_number"]) == ("2", 1)
        await worker.start(second)
        assert (await worker.finish(second))["disposition"] == "APPLIED"


async def test_what_a_draining_worker_declines_goes_to_others(
    service: Service, tenant: Tenant, pulse: Pulse
) -> None:
    """At once, and never back to the same session, which would decline it without end."""
    pulse.submit()
    async with connected(service.url, tenant) as worker:
        await worker.welcome()
        first = await worker.next("task.assign")
        assert (await worker.ask("decline", **ref(first), reason="DRAINING"))["type"] == "declined"
        pulse.submit()
        await worker.none("task.assign", 0.5)
        async with connected(service.url, tenant) as other:
            await other.welcome()
            taken = await other.many("task.assign", 2)
            assert first["task"]["id"] in {assignment["task"]["id"] for assignment in taken}
        assert (await worker.ask("drain"))["type"] == "drained"


async def test_leases_are_renewed_and_lost_ones_named(service: Service, tenant: Tenant, pulse: Pulse) -> None:
    """A held attempt gets its time, a foreign one STALE_ATTEMPT."""
    pulse.submit()
    async with connected(service.url, tenant) as worker:
        await worker.welcome()
        assignment = await worker.next("task.assign")
        await worker.start(assignment)
        foreign = {"attempt_id": "0" * 32, "epoch": "7"}
        renewed = await worker.ask("renew", attempts=[ref(assignment), foreign])
        mine, other = renewed["attempts"]
        assert (mine["ok"], mine["cancel_requested"]) == (True, False)
        assert 2_000 < mine["lease_ms"] <= 3_000
        assert (other["ok"], other["code"]) == (False, "STALE_ATTEMPT")
        await worker.finish(assignment)


async def test_a_cancel_reaches_a_running_handler(service: Service, tenant: Tenant, pulse: Pulse) -> None:
    """A hint makes the dispatcher tell its worker at once; the renewal says it too."""
    task_id = pulse.submit()
    async with connected(service.url, tenant) as worker:
        await worker.welcome()
        assignment = await worker.next("task.assign")
        await worker.start(assignment)
        pulse.cancel(task_id)
        hint(pulse, HintKind.CANCEL)
        assert (await worker.next("cancel.requested"))["attempt_id"] == assignment["attempt_id"]
        renewed = await worker.ask("renew", attempts=[ref(assignment)])
        assert renewed["attempts"][0]["cancel_requested"] is True
        await worker.finish(assignment, "RETRY", error={"code": "CANCELLED", "message": ""})
    assert pulse.task(task_id).state == "CANCELLED"


async def test_capacity_is_never_exceeded(service: Service, tenant: Tenant, pulse: Pulse) -> None:
    """A session of 7 seats with 30 tasks waiting holds 7, and gets one more for each result."""
    pulse.submit_many(30)
    async with connected(service.url, tenant) as worker:
        await worker.welcome(capacity=7)
        held = await worker.many("task.assign", 7)
        await worker.none("task.assign", 0.3)
        done = 0
        while held:
            assignment = held.pop(0)
            await worker.start(assignment)
            await worker.finish(assignment)
            done += 1
            if done <= 23:
                held += await worker.many("task.assign", 1)
            assert pulse.usage().active <= 7
        assert done == 30


async def test_work_is_dealt_to_all_sessions_of_a_pool(
    service: Service, tenant: Tenant, pulse: Pulse
) -> None:
    """Two workers with the same registration share what comes."""
    async with connected(service.url, tenant) as one, connected(service.url, tenant) as two:
        await one.welcome(capacity=10)
        await two.welcome(capacity=10)
        pulse.submit_many(20)
        hint(pulse, HintKind.SUBMIT)
        for worker in (one, two):
            for assignment in await worker.many("task.assign", 10):
                await worker.start(assignment)
                await worker.finish(assignment)


async def test_a_busy_queue_leaves_the_pools_of_others_alone(
    service: Service, tenant: Tenant, pulse: Pulse, session: Session
) -> None:
    """Hints name their queue: another queue's workers don't claim in vain, nor rest when their own work comes."""
    other = make_queue(session, tenant.application_id, tenant.namespace_id)
    async with connected(service.url, tenant) as busy, connected(service.url, tenant) as quiet:
        await busy.welcome()
        await quiet.welcome(queues=[id_text(other)])
        (pool,) = [
            pool
            for pool in service.dispatcher.application(tenant.application_id).pools.values()
            if pool.registration.queue_ids == (other,)
        ]
        claimed: list[bytes] = []
        claim = pool.claim

        def record(*options: Any) -> ClaimTasks:
            command = claim(*options)
            claimed.extend(command.queue_ids)
            return command

        pool.claim = record  # type: ignore[method-assign]
        for _ in range(5):
            pulse.submit()
            hint(pulse, HintKind.SUBMIT, tenant.queue_id)
            await busy.work_one()
        assert (claimed, pool.not_before) == ([], 0.0)
        pulse.submit(queue_id=other)
        hint(pulse, HintKind.SUBMIT, other)
        await quiet.work_one()
        assert claimed


async def test_a_worker_that_joins_a_full_pool_gets_what_waits(
    service: Service, tenant: Tenant, pulse: Pulse
) -> None:
    """The pool knows of work and had no room for it: the new session's room is used at once."""
    pulse.submit_many(3)
    async with connected(service.url, tenant) as one, connected(service.url, tenant) as two:
        await one.welcome(capacity=1)
        await one.start(await one.next("task.assign"))
        await two.welcome(capacity=1)
        await two.next("task.assign")


async def test_room_that_came_back_unseen_is_found(service: Service, tenant: Tenant, pulse: Pulse) -> None:
    """A pool that knows of work is given its turn by the next probe, whatever ended its rest or made its room."""
    async with connected(service.url, tenant) as worker:
        await worker.welcome()
        (pool,) = service.dispatcher.application(tenant.application_id).pools.values()
        pool.is_hinted, pool.not_before = True, trio.current_time() + 0.2
        pulse.submit()
        await worker.work_one()


async def test_large_payloads_do_not_end_a_session(service: Service, tenant: Tenant, pulse: Pulse) -> None:
    """64 payloads of 250 KiB pass a bounded outbox, each frame below its limit."""
    payload = json.dumps("x" * (250 * 1024)).encode()
    for _ in range(8):
        outcomes = pulse.submit_each([pulse.command(payload=payload) for _ in range(8)])
        assert len(outcomes) == 8
    async with connected(service.url, tenant) as worker:
        await worker.welcome(capacity=64)
        await trio.sleep(0.5)
        for assignment in await worker.many("task.assign", 64):
            assert len(assignment["task"]["payload"]) == 250 * 1024
            await worker.start(assignment)
            await worker.finish(assignment)


async def test_delayed_tasks_come_when_they_are_due(service: Service, tenant: Tenant, pulse: Pulse) -> None:
    """Promotion needs no hint and comes within milliseconds of the time."""
    async with connected(service.url, tenant) as worker:
        await worker.welcome()
        task_id = pulse.submit(delay_ms=700)
        await worker.none("task.assign", 0.4)
        await worker.work_one()
    started_at = pulse.row("attempts", task_id=task_id).started_at
    lateness = (started_at - pulse.task(task_id).available_at).total_seconds()
    assert 0 <= lateness < 0.5


async def test_a_hot_key_is_handed_over(service: Service, tenant: Tenant, pulse: Pulse) -> None:
    """One at a time, tokens rising, each released key claimed in the transaction that released it."""
    pulse.submit_many(5, concurrency_key="hot")
    tokens = []
    async with connected(service.url, tenant) as worker:
        await worker.welcome(capacity=5)
        for _ in range(5):
            assignment = await worker.work_one()
            tokens.append(int(assignment["concurrency_token"]))
        await worker.none("task.assign", 0.2)
    assert tokens == sorted(set(tokens))
    rows = sorted(pulse.rows("attempts", namespace_id=tenant.namespace_id), key=lambda row: row.leased_at)
    assert all(later.leased_at == earlier.ended_at for earlier, later in itertools.pairwise(rows))


async def test_a_key_freed_on_one_dispatcher_is_told_to_the_others(
    make_service: MakeService, tenant: Tenant, pulse: Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a result gives back may be another dispatcher's to claim: it hears of it, and takes the key."""
    pulse.submit(concurrency_key="shared")
    async with make_service() as one, make_service() as two, connected(one.url, tenant) as first:
        await first.welcome(capacity=1)
        held = await first.next("task.assign")
        await first.start(held)
        pulse.submit(concurrency_key="shared", handler="other")
        async with connected(two.url, tenant) as second:
            await second.welcome(handlers=[{"name": "other", "version": HANDLER[1]}])
            await second.none("task.assign", 0.8)
            heard = []
            take = two.dispatcher.hint_release

            def hear(one: Hint) -> None:
                heard.append(one.application)
                take(one)

            monkeypatch.setattr(two.dispatcher, "hint_release", hear)
            await first.finish(held)
            await second.next("task.assign")
            assert heard == [application_hash(tenant.application_id)]


async def test_a_worker_without_keys_gets_keyless_tasks_only(
    service: Service, tenant: Tenant, pulse: Pulse
) -> None:
    """Keyed ones wait for a worker that declared them."""
    pulse.submit(concurrency_key="k")
    keyless = pulse.submit()
    async with connected(service.url, tenant) as worker:
        await worker.welcome(concurrency_keys=False)
        assignment = await worker.work_one()
        assert assignment["task"]["id"] == id_text(keyless)
        assert "concurrency_token" not in assignment
        await worker.none("task.assign", 0.4)
    async with connected(service.url, tenant) as worker:
        await worker.welcome()
        await worker.work_one()


async def test_a_full_rate_window_sleeps_until_its_end(
    service: Service, tenants: TenantMaker, session: Session
) -> None:
    """Ten tasks at five a second take more than a second and few probes: the blocked queue isn't spun on."""
    tenant = tenants(limits=QueueLimits(rate_per_second=5))
    pulse = Pulse(session, tenant)
    pulse.submit_many(10)
    async with connected(service.url, tenant) as worker:
        await worker.welcome(capacity=10)
        probes, began = service.prober.count, trio.current_time()
        for _ in range(10):
            await worker.work_one()
        took = trio.current_time() - began
    assert 1.0 <= took < 4.0
    assert service.prober.count - probes < 40 * took


async def test_a_paused_queue_gives_nothing_until_it_goes_on(
    service: Service, tenants: TenantMaker, session: Session
) -> None:
    """The probe looks seldom meanwhile."""
    tenant = tenants(limits=QueueLimits(paused=True))
    pulse = Pulse(session, tenant)
    pulse.submit()
    async with connected(service.url, tenant) as worker:
        await worker.welcome()
        probes = service.prober.count
        await worker.none("task.assign", 1.0)
        assert service.prober.count - probes < 30
        session.run(
            lambda tx: tx.execute("UPDATE queues SET paused = 0 WHERE queue_id = %s", (tenant.queue_id,))
        )
        await worker.work_one()


def hint(pulse: Pulse, kind: HintKind, *queue_ids: bytes) -> None:
    """Send a hint to every live dispatcher, as a committing process does."""
    (one,) = hints_of(kind, pulse.tenant.application_id, queue_ids)
    data = encode_hint(one)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for row in pulse.session.run(select_live_dispatchers):
            address = parse_address(row.hint_address or "")
            if address is not None:
                sender.sendto(data, address)


async def test_whatever_a_worker_calls_its_failure_is_recorded(
    service: Service, tenant: Tenant, pulse: Pulse
) -> None:
    """A code outside of ASCII, too long, or of control characters must not cost the outcome."""
    codes = ["", "é", "\x00\n", "\U0001f600" * 100]
    pulse.submit_many(len(codes))
    async with connected(service.url, tenant) as worker:
        await worker.welcome(capacity=len(codes))
        for code in codes:
            assignment = await worker.next("task.assign")
            await worker.start(assignment)
            error = {"code": code, "message": "\x00\U0001f600" * 5_000}
            recorded = await worker.finish(assignment, "FAILED", error=error)
            assert (recorded["type"], recorded["task_state"]) == ("recorded", "FAILED")


async def test_an_output_may_be_64_levels_deep(service: Service, tenant: Tenant, pulse: Pulse) -> None:
    """Counted by itself, in a frame of one message and in an array; one level more breaks the protocol."""
    pulse.submit_many(3)
    deep = json.loads("[" * 64 + "]" * 64)
    async with connected(service.url, tenant) as worker:
        await worker.welcome(capacity=3)
        first, second, third = await worker.many("task.assign", 3)
        for assignment in (first, second, third):
            await worker.start(assignment)
        assert (await worker.finish(first, output=deep))["type"] == "recorded"
        result = {"type": "result", "id": "r2", "outcome": "SUCCEEDED", "output": deep, **ref(second)}
        await worker.send(result, {"type": "renew", "id": "r3", "attempts": []})
        assert (await worker.reply("r2"))["type"] == "recorded"
        await worker.send({**result, "id": "r4", "output": [deep], **ref(third)})
        assert (await worker.closing(5.0)).code == 1008
