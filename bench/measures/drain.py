"""How many tasks go through claim, assignment, Start and result in a second."""

from __future__ import annotations

from collections.abc import Callable

from bench.crew import Post
from bench.draining import COLUMNS, drain
from bench.fleet import API, DISPATCH, SECOND_DISPATCH, SINGLE_DISPATCH
from bench.lab import Lab
from bench.results import Measure, Values, rows_of
from bench.seed import fill

NAME = "drain"
ONE = "1 dispatcher, 1 worker"
TWO = "2 dispatchers, 2 workers"
APPLICATIONS = "2 dispatchers, 2 workers, 2 applications"
SINGLE = "1 dispatcher, 1 worker, groups of one"

NOTE = """
Tasks that wait beforehand, worked off by handlers that do nothing: claim, assignment, Start, result, each durable. One
application is written by one transaction at a time, so further dispatchers don't make it faster; they must not make it
slower. *Groups of one* is the same dispatcher with group commit switched off.
"""


def measure(lab: Lab) -> Measure:
    """Drain in every arrangement, round by round."""
    lab.fleet.keep(API, DISPATCH, SECOND_DISPATCH, SINGLE_DISPATCH)
    variants: dict[str, Callable[[Lab], Values]] = {
        SINGLE: _single,
        ONE: _one,
        TWO: _two,
        APPLICATIONS: _applications,
    }
    found: dict[str, list[Values]] = {name: [] for name in variants}
    for _ in range(lab.scale.rounds):
        for name, once in variants.items():
            found[name].append(once(lab))
    return Measure(
        name=NAME,
        title="Working tasks off",
        note=NOTE.strip(),
        columns=COLUMNS,
        rows=rows_of(found),
    )


def _one(lab: Lab) -> Values:
    tenant = lab.fresh()
    fill(lab.session, tenant, lab.scale.tasks)
    return drain(lab, [Post(tenant=tenant, dispatcher=DISPATCH)], lab.scale.tasks)


def _two(lab: Lab) -> Values:
    tenant = lab.fresh()
    fill(lab.session, tenant, lab.scale.tasks)
    posts = [Post(tenant=tenant, dispatcher=name) for name in (DISPATCH, SECOND_DISPATCH)]
    return drain(lab, posts, lab.scale.tasks)


def _applications(lab: Lab) -> Values:
    tenants = [lab.fresh(), lab.another()]
    for tenant in tenants:
        fill(lab.session, tenant, lab.scale.tasks // 2)
    posts = [
        Post(tenant=tenant, dispatcher=name)
        for tenant, name in zip(tenants, (DISPATCH, SECOND_DISPATCH), strict=True)
    ]
    return drain(lab, posts, lab.scale.tasks // 2 * 2)


def _single(lab: Lab) -> Values:
    tenant = lab.fresh()
    fill(lab.session, tenant, lab.scale.single_tasks)
    return drain(lab, [Post(tenant=tenant, dispatcher=SINGLE_DISPATCH)], lab.scale.single_tasks)
