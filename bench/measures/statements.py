"""How many statements a transaction takes, for one command and for a full group."""

from __future__ import annotations

from collections.abc import Callable

from bench.direct import GROUP, DirectWorker
from bench.lab import Lab
from bench.results import Column, Measure, Values, rows_of
from bench.seed import submit, submit_command

NAME = "statements"
STEPS = ("submit", "claim", "start", "finish")

NOTE = """
Statements in the transaction of one command, and of 64 of the same kind, counted by the transaction runner; the COMMIT
is not among them. Writes travel together with the next read, so round trips are fewer.
"""


def measure(lab: Lab) -> Measure:
    """Take groups of 1 and of 64 through their lives, without keys and each with its own."""
    lab.fleet.keep()
    found: dict[str, list[Values]] = {}
    for is_keyed in (False, True):
        worker = DirectWorker(lab.session, lab.fresh())
        counts = {size: _life(lab, worker, size, is_keyed=is_keyed) for size in (1, GROUP)}
        for step in STEPS:
            name = f"{step}, {'keyed' if is_keyed else 'keyless'}"
            found[name] = [{"one": counts[1][step], "group": counts[GROUP][step]}]
    return Measure(
        name=NAME,
        title="Statements a transaction",
        note=NOTE.strip(),
        columns=[
            Column(name="one", title="group of 1"),
            Column(name="group", title=f"group of {GROUP}"),
        ],
        rows=rows_of(found),
    )


def _life(lab: Lab, worker: DirectWorker, size: int, *, is_keyed: bool) -> dict[str, float]:
    def count(act: Callable[[], object]) -> float:
        before = lab.session.stats.statements
        act()
        return lab.session.stats.statements - before

    commands = [
        submit_command(worker.tenant, n, key=f"key-{size}-{n}" if is_keyed else None) for n in range(size)
    ]
    counts = {"submit": count(lambda: submit(lab.session, worker.tenant, commands))}
    before = lab.session.stats.statements
    held = worker.claim(size)
    counts["claim"] = lab.session.stats.statements - before
    if len(held) != size:
        raise RuntimeError(f"{len(held)} of {size} tasks were claimed")
    counts["start"] = count(lambda: worker.run([worker.starting(one) for one in held]))
    counts["finish"] = count(lambda: worker.run([worker.finishing(one) for one in held]))
    return counts
