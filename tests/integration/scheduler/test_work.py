"""Work over the wire: from hello to the recorded result."""

from __future__ import annotations

import json

from orbit.domain.ids import id_text
from orbit.scheduler.service import Service
from tests.support.frames import connected, ref
from tests.support.pulse import Pulse
from tests.support.tenants import Tenant


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
