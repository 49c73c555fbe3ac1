"""How fast tasks go that may run only one at a time per key."""

from __future__ import annotations

from bench.crew import Post
from bench.draining import COLUMNS, drain
from bench.fleet import API, DISPATCH
from bench.lab import Lab
from bench.results import Measure, Values, rows_of
from bench.seed import fill_keys

NAME = "keyed"
FIFTY, HOT = "50 keys", "one hot key"

NOTE = """
One task at a time per key, each under a fencing token higher than the one before; one dispatcher, one worker. On one
hot key every task waits for the end of the one before.
"""


def measure(lab: Lab) -> Measure:
    """Drain 50 keys in turn, then a single one, round by round."""
    lab.fleet.keep(API, DISPATCH)
    found: dict[str, list[Values]] = {FIFTY: [], HOT: []}
    for _ in range(lab.scale.rounds):
        found[FIFTY].append(_once(lab, lab.scale.keyed_tasks, keys=50))
        found[HOT].append(_once(lab, lab.scale.hot_tasks, keys=1))
    return Measure(
        name=NAME, title="One at a time per key", note=NOTE.strip(), columns=COLUMNS, rows=rows_of(found)
    )


def _once(lab: Lab, tasks: int, *, keys: int) -> Values:
    tenant = lab.fresh()
    fill_keys(lab.session, tenant, tasks, keys=keys)
    return drain(lab, [Post(tenant=tenant, dispatcher=DISPATCH)], tasks)
