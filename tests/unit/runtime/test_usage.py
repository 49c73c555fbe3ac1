"""A daemon answers --help and refuses any other argument, without looking at its settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "bin" / program), *arguments],
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'sdk'}"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("program", ["orbit-api", "orbit-dispatch", "orbit-recover"])
def test_help_and_nothing_else(program: str) -> None:
    told = run(program, "--help")
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.startswith(f"Usage: {program}\n")
    refused = run(program, "--port", "1")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == f"{program}: takes no arguments but --help\n"
