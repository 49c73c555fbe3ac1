"""What a claim costs beside what waits, is blocked, or has ended."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.direct import GROUP, DirectWorker
from bench.lab import Lab
from bench.results import Column, Measure, Values, rows_of
from bench.seed import copy_finished, fill, fill_delayed, submit, submit_command
from orbit.store.session import Session
from orbit.store.transaction import Tx

NAME = "claim"
EMPTY, EMPTY_KEYED = "nothing else, keyless", "nothing else, keyed"
BESIDE, BESIDE_KEYED = "nothing else, keyless, beside full queues", "nothing else, keyed, beside full queues"
BLOCKED, FINISHED, DELAYED = "blocked behind one busy key", "finished", "delayed"

NOTE = f"""
The transaction of a claim of {GROUP} tasks up to its COMMIT, rolled back and repeated: the median time, and the rows
that the storage engine read for it. *Nothing else* is measured on otherwise empty tables, and once more, in turn with
the rest, when the other queues are full. Those have, under one handler with the claimed tasks, so many others; the ones
behind the busy key are ahead in order.
"""


class _Undo(Exception):
    """Rolls a claim back."""


def measure(lab: Lab) -> Measure:
    """Time claims on empty tables, then beside each kind of other tasks."""
    lab.fleet.keep()
    scale = lab.scale
    lab.fresh()
    empty = {EMPTY: _keyless(lab, None), EMPTY_KEYED: _keyed(lab, 0)}
    found = _repeat(lab, empty, others={})
    full = {
        BLOCKED: _keyed(lab, scale.blocked),
        DELAYED: _keyless(lab, lambda worker: fill_delayed(lab.session, worker.tenant, scale.delayed)),
        FINISHED: _keyless(lab, lambda worker: _finish(lab, worker, scale.finished)),
    }
    others = {BLOCKED: scale.blocked, DELAYED: scale.delayed, FINISHED: scale.finished}
    empty = {BESIDE: empty[EMPTY], BESIDE_KEYED: empty[EMPTY_KEYED]}
    found |= _repeat(lab, empty | full, others=others)
    return Measure(
        name=NAME,
        title="The cost of a claim",
        note=NOTE.strip(),
        columns=[
            Column(name="beside", title="others in the queue"),
            Column(name="ms", title="ms", decimals=2),
            Column(name="read", title="rows read"),
            Column(name="per_task", title="rows read/task", decimals=1),
        ],
        rows=rows_of(found),
    )


def _keyless(lab: Lab, add: Callable[[DirectWorker], None] | None) -> DirectWorker:
    worker = DirectWorker(lab.session, lab.another())
    if add is not None:
        add(worker)
    submit(lab.session, worker.tenant, [submit_command(worker.tenant, n) for n in range(GROUP)])
    return worker


def _keyed(lab: Lab, blocked: int) -> DirectWorker:
    """Make a worker with 64 claimable keyed tasks, behind `blocked` ones whose key it holds."""
    worker = DirectWorker(lab.session, lab.another())
    if blocked:
        fill(lab.session, worker.tenant, blocked, key="busy")
        if len(worker.claim(1)) != 1:
            raise RuntimeError("the busy key wasn't claimed")
    free = [submit_command(worker.tenant, n, key=f"free-{n}") for n in range(GROUP)]
    submit(lab.session, worker.tenant, free)
    return worker


def _finish(lab: Lab, worker: DirectWorker, count: int) -> None:
    (task_id,) = submit(lab.session, worker.tenant, [submit_command(worker.tenant, 0)])
    (held,) = worker.claim(1)
    if held.task_id != task_id:
        raise RuntimeError("another task was claimed than the one to be copied")
    worker.run([worker.starting(held)])
    worker.run([worker.finishing(held)])
    copy_finished(lab.session, task_id, count)


def _repeat(lab: Lab, workers: dict[str, DirectWorker], *, others: dict[str, int]) -> dict[str, list[Values]]:
    """Claim in turn for each worker, so that noise falls on all alike."""
    found: dict[str, list[Values]] = {name: [] for name in workers}
    for turn in range(lab.scale.claims + 1):
        for name, worker in workers.items():
            values = _claim_once(lab.session, worker)
            if turn:  # the first one warms the caches
                found[name].append({**values, "beside": others.get(name, 0)})
    return found


def _claim_once(session: Session, worker: DirectWorker) -> Values:
    command = worker.claiming(GROUP)
    values: Values = {}

    def work(tx: Tx) -> None:
        read = _rows_read(tx)
        began = time.perf_counter()
        (claimed,) = worker.tick(tx, [command])
        tx.flush()
        values["ms"] = (time.perf_counter() - began) * 1_000
        values["read"] = _rows_read(tx) - read
        values["per_task"] = values["read"] / GROUP
        if len(claimed.assignments) != GROUP:
            raise RuntimeError(f"{len(claimed.assignments)} of {GROUP} tasks were claimed")
        raise _Undo

    try:
        session.run(work)
    except _Undo:
        return values
    raise AssertionError("a claim was committed")


def _rows_read(tx: Tx) -> int:
    rows = tx.rows("SHOW SESSION STATUS LIKE 'Handler_read%'")
    return sum(int(value) for name, value in rows if name != "Handler_read_rnd_deleted")
