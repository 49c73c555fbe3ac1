"""Runs become tables, bounds become verdicts, documents are filled between their markers."""

from __future__ import annotations

from pathlib import Path

from bench.bars import BARS
from bench.measures import drain, idle
from bench.peers.results import PeerRun, render_peer_bars
from bench.report import fill_document, render, render_bars, render_table
from bench.results import Column, Measure, Row, Run, read_run, write_run


def drained(**rates: list[float]) -> Run:
    """Return a run with the drains of these rates."""
    names = {"one": drain.ONE, "two": drain.TWO, "single": drain.SINGLE}
    rows = [
        Row(name=names[name], rounds=[{"rate": rate, "deadlocks": n} for n, rate in enumerate(seen)])
        for name, seen in rates.items()
    ]
    columns = [Column(name="rate", title="tasks/s"), Column(name="deadlocks", title="deadlocks")]
    measure = Measure(name=drain.NAME, title="Drain", note="", columns=columns, rows=rows)
    return Run(facts={"machine": "2 x test"}, measures=[measure])


def test_a_row_is_the_median_but_deadlocks_are_the_worst() -> None:
    run = drained(one=[10.0, 1_000.0, 30.0])
    assert run.value(drain.NAME, drain.ONE, "rate") == 30.0
    assert run.value(drain.NAME, drain.ONE, "deadlocks") == 2


def test_bars_are_ratios_within_the_run() -> None:
    text = render_bars(drained(single=[100.0], one=[600.0], two=[500.0]))
    verdicts = {line.split("|")[1].strip(): line for line in text.splitlines()}
    assert "| 6.00 | met |" in verdicts["drain: group commit against groups of one"]
    assert "| 0.83 | **missed** |" in verdicts["drain: 2 + 2 against 1 + 1, one application"]
    assert "not measured" in verdicts["one hot key"]
    assert len(verdicts) == len(BARS) + 2


def test_a_bound_from_above_is_met_from_below() -> None:
    bars = {bar.text: bar for bar in BARS}
    bar = bars["idle: the largest daemon"]
    rows = [Row(name=idle.DAEMONS, rounds=[{"memory": 119.0}])]
    run = Run(facts={}, measures=[Measure(name=idle.NAME, title="", note="", columns=[], rows=rows)])
    value = bar.figure(run)
    assert value == 119.0
    assert bar.is_met(value)
    assert not bar.is_met(121.0)


def test_a_table_shows_the_spread_and_marks_what_was_disturbed() -> None:
    columns = [Column(name="rate", title="tasks/s"), Column(name="ms", title="ms", decimals=1)]
    rows = [
        Row(name="quiet", rounds=[{"rate": 1_000, "others": 0.1}, {"rate": 3_000, "others": 1.5}]),
        Row(name="noisy", rounds=[{"rate": 10, "ms": 0.25, "others": 0.9}]),
    ]
    table = render_table(Measure(name="x", title="", note="", columns=columns, rows=rows)).splitlines()
    assert table[2] == "| quiet | 2,000 (1,000-3,000) | - |"
    assert table[3] == "| noisy * | 10 | 0.2 |"


def test_a_document_is_filled_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "performance.md"
    path.write_text(
        "# P\n\n<!-- bench:drain -->\nold\n<!-- /bench -->\n\n<!-- bench:keyed -->\nkept\n<!-- /bench -->\n",
        encoding="utf-8",
    )
    for rate in (100.0, 200.0):
        fill_document(path, drained(one=[rate]), {})
    text = path.read_text(encoding="utf-8")
    assert "old" not in text
    assert "| 100 |" not in text
    assert text.count("| 200 |") == 1
    assert "<!-- bench:keyed -->\nkept\n<!-- /bench -->" in text


def test_a_run_survives_its_file(tmp_path: Path) -> None:
    run = drained(one=[1.0, 2.0])
    write_run(run, tmp_path / "results" / "run.json")
    assert read_run(tmp_path / "results" / "run.json") == run
    assert "2 x test" in render(run)


def test_peers_are_compared_by_their_quiet_rounds() -> None:
    rounds = [{"rate": 5_000, "other_cores": 0.0}, {"rate": 100, "other_cores": 1.9}]
    peers = {"oban": {"C1": rounds}, "orbit": {"C1": [{"rate": 4_000, "other_cores": 0.1}]}}
    run = PeerRun(date="", machine="", versions=[], peers=peers)
    assert "| ≥ 0.6 x | 0.80 | met |" in render_peer_bars(run)
