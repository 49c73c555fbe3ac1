"""No application or queue starves another (C39)."""

from __future__ import annotations

import trio

from orbit.runtime.hints import HintKind
from orbit.scheduler.service import Service
from orbit.store.session import Session
from tests.integration.scheduler.test_work import hint
from tests.support.frames import FrameWorker, connected, ref
from tests.support.pulse import Pulse
from tests.support.tenants import Tenant, TenantMaker, make_queue


async def work_forever(worker: FrameWorker) -> None:
    """Start and finish whatever is assigned."""
    while True:
        while worker.inbox:
            message = worker.inbox.pop(0)
            if message["type"] == "task.assign":
                await worker.send({"type": "start", "id": f"s{message['attempt_id'][-20:]}", **ref(message)})
                await worker.send(
                    {
                        "type": "result",
                        "id": f"r{message['attempt_id'][-20:]}",
                        **ref(message),
                        "outcome": "SUCCEEDED",
                    }
                )
        await worker._receive()


async def trickle_waits(
    crowd: FrameWorker, lone: FrameWorker, trickle: Pulse, queue_id: bytes
) -> list[float]:
    """Submit single tasks for `lone` while `crowd` works as fast as it can; return how long each took, in seconds."""
    waits = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work_forever, crowd)
        for _ in range(8):
            trickle.submit(queue_id=queue_id)
            hint(trickle, HintKind.SUBMIT)
            began = trio.current_time()
            await lone.work_one()
            waits.append(trio.current_time() - began)
            await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    return waits


async def test_a_flooding_application_does_not_starve_another(
    service: Service, tenants: TenantMaker, session: Session
) -> None:
    """C39: while one application has thousands of urgent tasks, another's single ones are served at once."""
    busy, quiet = tenants(), tenants()
    Pulse(session, busy).submit_many(1_500, priority=9)
    async with connected(service.url, busy) as crowd, connected(service.url, quiet) as lone:
        await crowd.welcome(capacity=200)
        await lone.welcome(capacity=5)
        waits = await trickle_waits(crowd, lone, Pulse(session, quiet), quiet.queue_id)
    assert sorted(waits)[-2] < 1.0, waits


async def test_a_flooding_pool_does_not_starve_another(
    service: Service, tenant: Tenant, pulse: Pulse, session: Session
) -> None:
    """C39: two pools of one application on one dispatcher, each on a queue of its own: the quiet one is served too."""
    other = make_queue(session, tenant.application_id, tenant.namespace_id)
    pulse.submit_many(1_500, priority=9)
    async with connected(service.url, tenant) as crowd, connected(service.url, tenant) as lone:
        await crowd.welcome(capacity=200)
        await lone.welcome(capacity=5, queues=[other.hex()])
        waits = await trickle_waits(crowd, lone, pulse, other)
    assert sorted(waits)[-2] < 1.0, waits


async def test_a_flooding_queue_does_not_starve_another(
    service: Service, tenant: Tenant, pulse: Pulse, session: Session
) -> None:
    """C39: one pool over two queues: a claim gives each its share, whatever the priorities."""
    other = make_queue(session, tenant.application_id, tenant.namespace_id)
    pulse.submit_many(300, priority=9)
    late = {task_id.hex() for task_id in pulse.submit_many(3, queue_id=other)}
    async with connected(service.url, tenant) as worker:
        await worker.welcome(capacity=20, queues=[tenant.queue_id.hex(), other.hex()])
        first = {assignment["task"]["id"] for assignment in await worker.many("task.assign", 20)}
    assert late <= first
