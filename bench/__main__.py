"""`python -m bench` measures; `python -m bench report` shows what was measured."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

import click

from bench.peers.results import read_peers, render_peer_bars, render_peer_table
from bench.report import fill_document, render
from bench.results import read_run
from bench.scale import FULL, QUICK
from bench.suite import MEASURES, run_suite
from orbit.localdb.bundle import Flavour

RESULTS: Final = Path(__file__).parent / "results"
LATEST: Final = RESULTS / "latest.json"

EPILOG = """
\b
Examples:
  python -m bench
  python -m bench --only drain,keyed
  python -m bench --quick
  python -m bench report --into docs/performance.md
"""


@click.group(invoke_without_command=True, epilog=EPILOG)
@click.option("--only", default="", help=f"Some of: {', '.join(MEASURES)}.")
@click.option("--quick", is_flag=True, help="Small sizes: shows that everything runs.")
@click.option("--rounds", type=click.IntRange(1, 20), help="How often each comparison is repeated.")
@click.option("--flavour", type=click.Choice([f.value for f in Flavour]), default="mysql", show_default=True)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Default: bench/results.")
@click.pass_context
def main(
    context: click.Context, *, only: str, quick: bool, rounds: int | None, flavour: str, output: Path | None
) -> None:
    """Measure Orbit on a private, durable database with real processes."""
    if context.invoked_subcommand is not None:
        return
    names = [name for name in only.split(",") if name] or list(MEASURES)
    unknown = sorted(set(names) - MEASURES.keys())
    if unknown:
        raise click.UsageError(f"no such measurement: {', '.join(unknown)}; there are {', '.join(MEASURES)}")
    scale = QUICK if quick else FULL
    if rounds is not None:
        scale = scale.with_rounds(rounds)
    path = output or RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    run, failures = run_suite(names, scale, Flavour(flavour), path, _say)
    if output is None:
        LATEST.write_bytes(path.read_bytes())
    click.echo(render(run))
    _say(f"written to {path}")
    sys.exit(1 if failures else 0)


@main.command()
@click.argument(
    "file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path), default=None
)
@click.option("--into", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Fill its tables.")
@click.option("--peers", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A results.json.")
def report(*, file: Path | None, into: Path | None, peers: Path | None) -> None:
    """Show a run (the latest by default) as Markdown, or put its tables into a document."""
    extra: dict[str, str] = {}
    if peers is not None:
        compared = read_peers(peers)
        extra = {"peers": render_peer_table(compared), "peerbars": render_peer_bars(compared)}
    source = file or (LATEST if LATEST.exists() else None)
    if source is None and not extra:
        raise click.UsageError("nothing has been measured yet: run `python -m bench`")
    run = None if source is None else read_run(source)
    if into is not None:
        fill_document(into, run, extra)
        return
    if run is not None:
        click.echo(render(run))
    for text in extra.values():
        click.echo(text + "\n")


def _say(text: str) -> None:
    click.echo(f"bench: {text}", err=True)


if __name__ == "__main__":
    main()
