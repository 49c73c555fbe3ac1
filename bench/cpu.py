"""CPU time and memory of processes, as the kernel counts them (Linux)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

TICK_SECONDS: Final = 1 / os.sysconf("SC_CLK_TCK")
_USER, _CHILD_SYSTEM = 11, 15


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process with its threads and the children it has waited for; 0 once it has gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[_USER:_CHILD_SYSTEM])) * TICK_SECONDS


def cpu_of(pids: Mapping[str, int]) -> dict[str, float]:
    """Return the CPU seconds of each process by its name."""
    return {name: cpu_seconds(pid) for name, pid in pids.items()}


def busy_seconds() -> float:
    """Return the CPU time that the whole machine has used since it started."""
    line = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    fields = list(map(int, line.split()[1:9]))
    return (sum(fields) - fields[3] - fields[4]) * TICK_SECONDS


def resident_mb(pid: int) -> float:
    """Return a process's resident memory (RSS) in MB."""
    return _field_kb(Path(f"/proc/{pid}/status"), "VmRSS:") / 1_000


def _field_kb(path: Path, label: str) -> float:
    for line in path.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(label):
            return float(line.split()[1]) * 1.024
    return 0.0
