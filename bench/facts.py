"""Where and with what a run was measured."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path

from bench.database import durability
from orbit.cli.procfile import PACKAGE
from orbit.localdb.instance import Instance


def read_facts(instance: Instance) -> dict[str, str]:
    """Return machine, commit, versions, load at the start, and the database's durability settings."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": f"{os.cpu_count()} x {_processor()}",
        "commit": _commit(),
        "python": platform.python_version(),
        "database": f"{instance.flavour.value} {'.'.join(map(str, instance.version))}",
        "load_before": f"{os.getloadavg()[0]:.2f}",
        **durability(instance),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(PACKAGE.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    try:
        commit = git("rev-parse", "--short=12", "HEAD")
    except OSError:
        return "unknown"
    return (commit or "unknown") + (" with changes" if git("status", "--porcelain") else "")
