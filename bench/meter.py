"""What a stretch of time cost: CPU by process, and what the database did."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from bench.counters import difference, read_counts
from bench.cpu import busy_seconds, cpu_of
from bench.lab import Lab

MICROSECONDS = 1e6
PER_TASK = ("commits", "statements", "log_syncs", "log_bytes")


class Meter:
    """Measures from its making, or from the last `restart`, to `read`."""

    def __init__(self, lab: Lab, pids: Mapping[str, int]) -> None:
        server = lab.instance.pid
        self._lab = lab
        self._pids = {**lab.fleet.pids(), **pids, **({"database": server} if server else {})}
        self._own = {**self._pids, "bench": os.getpid()}
        self.restart()

    def restart(self) -> None:
        self._counts = read_counts(self._lab.instance)
        self.restart_cpu()

    def restart_cpu(self) -> None:
        """Count CPU from now on; the database's own counts go on."""
        self._began = time.monotonic()
        self._busy = busy_seconds()
        self._cpu = cpu_of(self._own)

    def read(self, tasks: int, *, own_statements: int = 0) -> dict[str, float]:
        """Return the costs per task: CPU microseconds of each process (those of a kind added up), counts of the
        database without the measurement's own statements; and `others`, the cores that everything else on the machine
        used meanwhile.
        """
        cpu = difference(cpu_of(self._own), self._cpu)
        elapsed = time.monotonic() - self._began
        others = max(0.0, busy_seconds() - self._busy - sum(cpu.values())) / elapsed
        costs: dict[str, float] = {}
        for name, seconds in cpu.items():
            kind = f"{name.partition('-')[0]}_us"
            costs[kind] = costs.get(kind, 0.0) + seconds * MICROSECONDS / max(1, tasks)
        counts = difference(read_counts(self._lab.instance), self._counts)
        counts["statements"] -= own_statements
        costs |= {name: counts[name] / max(1, tasks) for name in PER_TASK if name in counts}
        return {
            **costs,
            "deadlocks": counts["deadlocks"],
            "lock_waits": counts["lock_waits"],
            "others": others,
        }
