"""The worker against a scripted dispatcher on loopback."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import trio

from orbit_sdk import APIError, Execution, Fail, ProtocolError, Raw, Retry, SessionRefused, Unknown, Worker
from tests.unit.sdk.peer import QUEUE_ID, Peer, PeerServer, assignment, open_peer_server

Run = Callable[..., Any]


@dataclass
class Rig:
    """A worker, its dispatcher, and the scope that runs it."""

    worker: Worker
    server: PeerServer
    nursery: trio.Nursery
    scope: trio.CancelScope
    finished: trio.Event
    failure: BaseException | None = None

    async def run(self) -> None:
        try:
            with self.scope:
                await self.worker.run()
        except Exception as exc:  # noqa: BLE001 - whatever ends the worker is what the test looks at
            self.failure = exc
        finally:
            self.finished.set()


@asynccontextmanager
async def rig(*, run_now: bool = True, **options: Any) -> AsyncIterator[Rig]:
    with trio.fail_after(6):
        async with open_peer_server() as server, trio.open_nursery() as nursery:
            worker = Worker(
                "http://127.0.0.1:9", "token", queues=[QUEUE_ID], worker_url=server.url,
                **{"capacity": 4, "grace_seconds": 0.1, **options},
            )  # fmt: skip
            built = Rig(worker, server, nursery, trio.CancelScope(), trio.Event())
            yield built
            built.scope.cancel()
            nursery.cancel_scope.cancel()


async def start_one(rig: Rig, handler: Run, *, sent: dict[str, Any] | None = None, **options: Any) -> Peer:
    """Register the handler, run the worker, assign one task and grant its start."""
    rig.worker.handler("object.update", version="v1", **options)(handler)
    rig.nursery.start_soon(rig.run)
    peer = await rig.server.next()
    await peer.greet()
    await peer.send(sent or assignment())
    await peer.grant(await peer.receive("start"))
    return peer


async def outcome_of(handler: Run, *, sent: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """The result message that a handler leads to."""
    async with rig() as built:
        peer = await start_one(built, handler, sent=sent, **options)
        result = await peer.receive("result")
        await peer.record(result)
        return result


async def test_a_task_runs_after_its_start_and_its_return_value_is_the_output() -> None:
    """Assign, start, started, result: with the registration in hello and the token in the upgrade."""

    async def update(e: Execution[Any]) -> dict[str, Any]:
        return {"got": e.payload, "token": e.concurrency_token, "epoch": e.epoch}

    async with rig(name="tester") as built:
        sent = assignment(payload={"n": 2**64 + 1}, concurrency_token="7", task_concurrency_key="k")
        built.worker.handler("object.update", version="v1", effect="FENCED")(update)
        built.nursery.start_soon(built.run)
        peer = await built.server.next()
        hello = await peer.greet()
        assert hello["queues"] == [QUEUE_ID]
        assert hello["handlers"] == [{"name": "object.update", "version": "v1", "effect": "FENCED"}]
        assert hello["concurrency_keys"] is True
        assert hello["capacity"] == 4
        assert hello["name"] == "tester"
        assert (b"authorization", b"Bearer token") in built.server.requests[0].headers
        await peer.send(sent)
        start = await peer.receive()
        assert (start["type"], start["attempt_id"], start["epoch"]) == ("start", sent["attempt_id"], "1")
        await peer.grant(start)
        result = await peer.receive()
        assert result["type"] == "result"
        assert result["outcome"] == "SUCCEEDED"
        assert result["output"] == {"got": {"n": 2**64 + 1}, "token": 7, "epoch": 1}


async def test_signals_of_a_handler_become_outcomes() -> None:
    """Retry, Fail and Unknown report what they say."""

    async def retry(e: Execution[Any]) -> None:
        raise Retry("later", after=1.5)

    async def fail(e: Execution[Any]) -> None:
        raise Fail("NO_SUCH_OBJECT", "it is gone")

    async def unknown(e: Execution[Any]) -> None:
        raise Unknown("the answer was lost")

    result = await outcome_of(retry)
    assert (result["outcome"], result["retry_after_ms"]) == ("RETRY", 1500)
    assert result["error"] == {"code": "RETRY", "message": "later"}
    result = await outcome_of(fail)
    assert (result["outcome"], result["error"]) == (
        "FAILED",
        {"code": "NO_SUCH_OBJECT", "message": "it is gone"},
    )
    result = await outcome_of(unknown)
    assert (result["outcome"], result["error"]["message"]) == ("UNKNOWN", "the answer was lost")


async def test_any_other_exception_is_a_retry_or_unknown_for_once() -> None:
    """A SystemExit ends the attempt, not the worker; a handler of class ONCE is never rerun."""

    async def leave(e: Execution[Any]) -> None:
        raise SystemExit("bye")

    async def grouped(e: Execution[Any]) -> None:
        async with trio.open_nursery():
            raise ValueError("inside \ud800\x00")

    result = await outcome_of(leave)
    assert (result["outcome"], result["error"]) == ("RETRY", {"code": "SystemExit", "message": "bye"})
    result = await outcome_of(grouped)
    assert result["error"] == {"code": "ValueError", "message": "inside \ufffd\ufffd"}
    result = await outcome_of(leave, effect="ONCE")
    assert result["outcome"] == "UNKNOWN"


async def test_sync_functions_run_in_a_thread() -> None:
    """A blocking handler sees its execution from another thread."""

    def blocking(e: Execution[Any]) -> list[Any]:
        return [threading.current_thread() is threading.main_thread(), e.lease_lapsed, e.remaining() > 50]

    async with rig() as built:
        built.worker.handler("object.update")(blocking)
        built.nursery.start_soon(built.run)
        peer = await built.server.next()
        await peer.greet()
        await peer.send(assignment())
        await peer.grant(await peer.receive("start"), deadline_ms=60_000)
        assert (await peer.receive("result"))["output"] == [False, False, True]


async def test_the_attempt_deadline_ends_the_handler() -> None:
    """`deadline_ms` of started cancels the handler; the report is RETRY with ATTEMPT_TIMEOUT."""
    async with rig() as built:
        built.worker.handler("object.update")(_sleep_forever)
        built.nursery.start_soon(built.run)
        peer = await built.server.next()
        await peer.greet()
        await peer.send(assignment())
        await peer.grant(await peer.receive("start"), deadline_ms=50)
        result = await peer.receive("result")
        assert (result["outcome"], result["error"]["code"]) == ("RETRY", "ATTEMPT_TIMEOUT")


async def _sleep_forever(e: Execution[Any]) -> None:
    await trio.sleep_forever()


async def test_a_cancel_request_only_sets_the_event() -> None:
    """The handler decides what to make of it."""

    async def patient(e: Execution[Any]) -> str:
        await e.cancelled.wait()
        return "stopped in order"

    async with rig() as built:
        peer = await start_one(built, patient)
        await peer.send({"type": "cancel.requested", "attempt_id": assignment()["attempt_id"]})
        assert (await peer.receive("result"))["output"] == "stopped in order"


async def test_a_lost_attempt_is_cancelled_and_not_reported() -> None:
    """A renewal that says STALE_ATTEMPT ends the handler's scope; nothing is sent for it."""
    ended: list[str] = []

    async def handler(e: Execution[Any]) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(e.attempt_id)

    async with rig() as built:
        built.worker.handler("object.update")(handler)
        built.nursery.start_soon(built.run)
        peer = await built.server.next()
        await peer.greet(renew_ms=50)
        sent = assignment()
        await peer.send(sent)
        await peer.grant(await peer.receive("start"))
        renew = await peer.receive("renew")
        assert renew["attempts"] == [{"attempt_id": sent["attempt_id"], "epoch": "1"}]
        lost = {"attempt_id": sent["attempt_id"], "epoch": "1", "ok": False, "code": "STALE_ATTEMPT"}
        await peer.send({"type": "renewed", "reply_to": renew["id"], "attempts": [lost]})
        await peer.send(assignment(2))
        message = await peer.receive("start", "result")
        assert message["type"] == "start"
        assert ended == [sent["attempt_id"]]


async def test_a_result_survives_a_cut_connection_and_runs_once() -> None:
    """C16: cut right after the result frame; after resume it comes again with the same id, the handler does not."""
    calls: list[str] = []

    async def handler(e: Execution[Any]) -> int:
        calls.append(e.attempt_id)
        return 1

    async with rig() as built:
        peer = await start_one(built, handler)
        first = await peer.receive("result")
        await peer.cut()
        peer = await built.server.next()
        await peer.greet(generation=2)
        resume = await peer.receive()
        assert resume["type"] == "resume"
        attempt = {"attempt_id": first["attempt_id"], "epoch": "1"}
        assert resume["attempts"] == [attempt]
        # The result had been recorded: the attempt is not owned any more, and the result is repeated all the same.
        answer = {"type": "resumed", "reply_to": resume["id"], "attempts": [{**attempt, "owned": False}]}
        await peer.send(answer)
        second = await peer.receive()
        assert second == first
        await peer.record(second, "DUPLICATE")
        await peer.send(assignment(2))
        assert (await peer.receive())["type"] == "start"
        assert len(calls) == 1


async def test_an_unanswered_start_is_repeated_and_running_work_goes_on() -> None:
    """A reconnect neither restarts a handler nor loses a start."""
    release = trio.Event()

    async def handler(e: Execution[Any]) -> str:
        await release.wait()
        return "done"

    async with rig() as built:
        peer = await start_one(built, handler)
        await peer.send(assignment(2))
        start = await peer.receive("start")
        await peer.close(1001, "shutdown")
        peer = await built.server.next()
        await peer.greet(generation=2)
        resume = await peer.receive("resume")
        assert len(resume["attempts"]) == 2
        owned = [
            {**resume["attempts"][0], "owned": True, "state": "RUNNING", "lease_ms": 30000, "cancel_requested": False},
            {**resume["attempts"][1], "owned": True, "state": "LEASED", "lease_ms": 30000, "cancel_requested": False},
        ]  # fmt: skip
        await peer.send({"type": "resumed", "reply_to": resume["id"], "attempts": owned})
        again = await peer.receive()
        assert again == start
        await peer.grant(again)
        release.set()
        results = [await peer.receive("result"), await peer.receive("result")]
        assert {each["outcome"] for each in results} == {"SUCCEEDED"}


async def test_drain_declines_what_waits_finishes_what_runs_and_closes() -> None:
    """Cancellation of `run` ends in order: drain, decline, results, drained, close."""
    release = trio.Event()

    async def handler(e: Execution[Any]) -> str:
        await release.wait()
        return "done"

    async with rig(grace_seconds=5.0) as built:
        peer = await start_one(built, handler)
        await peer.send(assignment(2))
        start = await peer.receive("start")
        refusal = {"type": "refused", "reply_to": start["id"], "code": "RATE_LIMITED", "message": "wait",
                   "retry_after_ms": 5000}  # fmt: skip
        await peer.send(refusal, assignment(3))
        await peer.grant(await peer.receive("start"))
        built.scope.cancel()
        drain = await peer.receive()
        assert drain["type"] == "drain"
        decline = await peer.receive()
        assert (decline["type"], decline["reason"]) == ("decline", "DRAINING")
        await peer.send({"type": "declined", "reply_to": decline["id"]}, assignment(4))
        late = await peer.receive()
        assert (late["type"], late["reason"]) == ("decline", "DRAINING")
        await peer.send({"type": "declined", "reply_to": late["id"]})
        release.set()
        for _ in range(2):
            await peer.record(await peer.receive("result"))
        await peer.send({"type": "drained", "reply_to": drain["id"]})
        assert await peer.wait_closed() == 1000
        await built.finished.wait()


async def test_the_grace_period_ends_handlers_that_do_not_stop() -> None:
    """After it they are cancelled, and their outcome is reported before the end."""
    async with rig(grace_seconds=0.05) as built:
        peer = await start_one(built, _sleep_forever)
        built.worker.drain()
        built.worker.drain()
        result = await peer.receive("result")
        assert (result["outcome"], result["error"]["code"]) == ("RETRY", "WORKER_SHUTDOWN")
        await peer.record(result)
        await peer.send({"type": "drained", "reply_to": "x"})
        await built.finished.wait()
        assert built.failure is None


async def test_renewals_overtake_a_backlog_and_results_travel_together() -> None:
    """What is ready goes out in arrays of at most 64."""
    release = trio.Event()

    async def handler(e: Execution[Any]) -> int:
        await release.wait()
        return 1

    async with rig(capacity=200) as built:
        built.worker.handler("object.update")(handler)
        built.nursery.start_soon(built.run)
        peer = await built.server.next()
        await peer.greet()
        for base in (1, 65, 129):
            await peer.send(*[assignment(base + n) for n in range(64)])
        starts = [await peer.receive("start") for _ in range(192)]
        replies = [{"type": "started", "reply_to": each["id"], "lease_ms": 30000} for each in starts]
        for base in (0, 64, 128):
            await peer.send(*replies[base : base + 64])
        await trio.testing.wait_all_tasks_blocked(0.05)
        peer.frame_sizes.clear()
        release.set()
        for _ in range(192):
            await peer.receive("result")
        assert peer.frame_sizes == [64, 64, 64]


async def test_a_broken_protocol_ends_the_worker_with_its_reason() -> None:
    """A keyed task without a token, a token without a key, and an unknown message raise ProtocolError."""
    broken = [
        assignment(task_concurrency_key="k"),
        assignment(concurrency_token="1"),
        assignment(concurrency_token="0", task_concurrency_key="k"),
        {"type": "surprise"},
    ]
    for message in broken:
        async with rig() as built:
            built.worker.handler("object.update")(_sleep_forever)
            built.nursery.start_soon(built.run)
            peer = await built.server.next()
            await peer.greet()
            await peer.send(message)
            await built.finished.wait()
            assert isinstance(built.failure, ProtocolError), message


async def test_refused_credentials_and_registrations_are_final() -> None:
    """401 before the upgrade and an error to hello end the worker instead of a loop."""
    async with rig() as built:
        built.worker.handler("object.update")(_sleep_forever)
        built.server.refuse_next(401)
        await built.run()
        assert isinstance(built.failure, APIError)
        assert built.failure.code == "UNAUTHENTICATED"
    async with rig() as built:
        built.worker.handler("object.update")(_sleep_forever)
        built.nursery.start_soon(built.run)
        peer = await built.server.next()
        hello = await peer.receive("hello")
        await peer.send({"type": "error", "reply_to": hello["id"], "code": "NOT_FOUND", "message": "queue"})
        await built.finished.wait()
        assert isinstance(built.failure, SessionRefused)


async def test_a_503_before_the_upgrade_is_tried_again() -> None:
    """An overloaded dispatcher does not end the worker."""
    async with rig() as built:
        built.worker.handler("object.update")(_sleep_forever)
        built.server.refuse_next(503)
        built.nursery.start_soon(built.run)
        peer = await built.server.next()
        await peer.greet()


async def test_an_invalid_payload_fails_for_good() -> None:
    """No repetition makes a payload fit its type."""
    result = await outcome_of(_typed, sent=assignment(payload={"size": "big"}))
    assert (result["outcome"], result["error"]["code"]) == ("FAILED", "INVALID_PAYLOAD")


@dataclass
class Box:
    size: int


async def _typed(e: Execution[Any], box: Box) -> int:
    return box.size


async def test_unusable_outputs_end_the_task() -> None:
    """An output that cannot be stored is FAILED, or UNKNOWN where a rerun is out of the question."""

    async def large(e: Execution[Any]) -> str:
        return "x" * 300_000

    async def strange(e: Execution[Any]) -> object:
        return object()

    assert (await outcome_of(large))["error"]["code"] == "OUTPUT_TOO_LARGE"
    result = await outcome_of(strange, effect="ONCE")
    assert (result["outcome"], result["error"]["code"]) == ("UNKNOWN", "OUTPUT_INVALID")


@pytest.mark.parametrize(
    "output",
    [
        Raw(b""),
        Raw(b"{not json"),
        Raw(b"NaN"),
        Raw(b'{"a":1,"\\u0061":2}'),
        Raw(b'["\\ud800"]'),
        Raw(b"\xff"),
        Raw(b"[" * 65 + b"]" * 65),
        Raw(b'{"a":' * 5_000 + b"1" + b"}" * 5_000),
        {1: "a", "1": "b"},
        "\ud800",
    ],
)
async def test_an_output_that_breaks_the_protocol_is_never_sent(output: object) -> None:
    """The server would end the connection for it, again after each reconnect, and with it all other attempts."""

    async def handler(e: Execution[Any]) -> object:
        return output

    assert (await outcome_of(handler))["error"]["code"] == "OUTPUT_INVALID"


async def test_outputs_within_the_protocol_are_sent_as_they_are() -> None:
    """64 levels, brackets in texts, pairs of surrogates, long numbers."""
    deep = "[" * 63 + '"]}[{\\ud83d\\ude00"' + "," + "9" * 4_000 + "]" * 63

    async def handler(e: Execution[Any]) -> object:
        return Raw(deep.encode())

    assert (await outcome_of(handler))["outcome"] == "SUCCEEDED"


def test_registrations_are_checked() -> None:
    """Names, versions, effects and signatures are refused where they are written."""
    worker = Worker("http://127.0.0.1:9", "t", queues=["q"])
    with pytest.raises(ValueError, match="handler name"):
        worker.handler("-x")(_sleep_forever)
    with pytest.raises(ValueError, match="effect"):
        worker.handler("x", effect="SOMETIMES")(_sleep_forever)
    with pytest.raises(TypeError, match="Execution"):
        worker.handler("x")(lambda: None)
    with pytest.raises(ValueError, match="capacity"):
        Worker("http://127.0.0.1:9", "t", queues=["q"], capacity=0)
