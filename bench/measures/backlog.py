"""Whether a deep backlog slows the work down."""

from __future__ import annotations

from bench.crew import Post
from bench.draining import COLUMNS, drain
from bench.fleet import API, DISPATCH
from bench.lab import Lab
from bench.results import Column, Measure, Values, rows_of
from bench.seed import fill

NAME = "backlog"
SHALLOW, DEEP = "all of a few", "as many of a deep backlog"

NOTE = """
The same number of tasks worked off when nothing else waits, and as the first of a backlog that is twenty times as deep.
"""


def measure(lab: Lab) -> Measure:
    """Drain shallow and deep queues in turn."""
    lab.fleet.keep(API, DISPATCH)
    tasks = lab.scale.tasks
    depths = {SHALLOW: tasks, DEEP: max(lab.scale.backlog, 2 * tasks)}
    found: dict[str, list[Values]] = {name: [] for name in depths}
    for _ in range(lab.scale.rounds):
        for name, depth in depths.items():
            tenant = lab.fresh()
            fill(lab.session, tenant, depth)
            values = drain(lab, [Post(tenant=tenant, dispatcher=DISPATCH)], tasks)
            found[name].append({**values, "depth": depth})
    columns = [Column(name="depth", title="waiting"), *COLUMNS]
    return Measure(name=NAME, title="A deep backlog", note=NOTE.strip(), columns=columns, rows=rows_of(found))
