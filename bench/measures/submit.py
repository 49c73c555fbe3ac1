"""How many tasks are accepted over HTTP: one by one, in batches, and without group commit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from bench.fleet import API, DISPATCH, SINGLE_API
from bench.jobs import job
from bench.lab import Lab
from bench.load import Rate, Target, submit_batches, submit_for
from bench.meter import Meter
from bench.results import Column, Measure, Values, rows_of

NAME = "submit"
ONE, SIXTEEN, MANY = "1 caller", "16 callers", "64 callers"
SINGLE = "16 callers, groups of one"
BATCHES = "8 callers, batches of 32"

NOTE = """
Calls that the server acknowledged, each after its COMMIT was durable; nobody works on the tasks meanwhile. *Groups of
one* is the same API with group commit switched off. The callers are one Python process on the same machine.
"""


def measure(lab: Lab) -> Measure:
    """Submit in every way, round by round."""
    lab.fleet.keep(API, SINGLE_API, DISPATCH)
    seconds = lab.scale.submit_seconds
    variants: dict[str, tuple[str, Callable[[Target], Rate]]] = {
        ONE: (API, partial(_for, seconds=seconds, callers=1)),
        SIXTEEN: (API, partial(_for, seconds=seconds, callers=16)),
        MANY: (API, partial(_for, seconds=seconds, callers=64)),
        SINGLE: (SINGLE_API, partial(_for, seconds=seconds, callers=16)),
        BATCHES: (API, partial(_batches, tasks=lab.scale.batched_tasks)),
    }
    found: dict[str, list[Values]] = {name: [] for name in variants}
    for _ in range(lab.scale.rounds):
        for name, (api, submit) in variants.items():
            found[name].append(_once(lab, api, submit))
    return Measure(
        name=NAME,
        title="Submitting over HTTP",
        note=NOTE.strip(),
        columns=[
            Column(name="rate", title="tasks/s"),
            Column(name="api_us", title="API CPU µs/task"),
            Column(name="database_us", title="database CPU µs/task"),
            Column(name="bench_us", title="client CPU µs/task"),
            Column(name="commits", title="commits/task", decimals=3),
            Column(name="statements", title="statements/task", decimals=2),
            Column(name="others", title="other load, cores", decimals=2),
        ],
        rows=rows_of(found),
    )


def _once(lab: Lab, api: str, submit: Callable[[Target], Rate]) -> Values:
    tenant = lab.fresh()
    meter = Meter(lab, {})
    rate = submit(Target(lab.fleet.url(api), tenant.token_text, tenant.queue))
    return {"rate": rate.tasks / rate.seconds, **meter.read(rate.tasks)}


def _for(target: Target, *, seconds: float, callers: int) -> Rate:
    return trio.run(partial(submit_for, target, seconds=seconds, callers=callers))


def _batches(target: Target, *, tasks: int) -> Rate:
    return trio.run(partial(submit_batches, target, [job(n) for n in range(tasks)], callers=8))
