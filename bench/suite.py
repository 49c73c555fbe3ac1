"""All measurements, in the order in which they run: what fills the tables comes last."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.facts import read_facts
from bench.lab import Lab, open_lab
from bench.measures import backlog, claim, drain, idle, keyed, latency, statements, submit
from bench.results import Measure, Run, write_run
from bench.scale import Scale
from orbit.localdb.apt import Say
from orbit.localdb.bundle import Flavour

MEASURES: Final[Mapping[str, Callable[[Lab], Measure]]] = {
    idle.NAME: idle.measure,
    latency.NAME: latency.measure,
    submit.NAME: submit.measure,
    drain.NAME: drain.measure,
    keyed.NAME: keyed.measure,
    statements.NAME: statements.measure,
    backlog.NAME: backlog.measure,
    claim.NAME: claim.measure,
}


def run_suite(
    names: Sequence[str], scale: Scale, flavour: Flavour, output: Path, say: Say
) -> tuple[Run, dict[str, Exception]]:
    """Run the named measurements on one database; return what was found, and what failed.

    The file is written after each measurement, so that a run that is cut short leaves what it had.
    """
    began = time.monotonic()
    found: list[Measure] = []
    failures: dict[str, Exception] = {}
    with open_lab(flavour, scale, say) as lab:
        facts = {**read_facts(lab.instance), "scale": f"{scale.name}, {scale.rounds} rounds"}
        for name in names:
            say(f"[{time.monotonic() - began:5.1f} s] {name}")
            try:
                found.append(MEASURES[name](lab))
            except Exception as error:  # noqa: BLE001 - the other measurements are worth having
                failures[name] = error
                say(f"{name} failed: {error!r}")
            facts["seconds"] = f"{time.monotonic() - began:.0f}"
            write_run(Run(facts=facts, measures=found), output)
    return Run(facts=facts, measures=found), failures
