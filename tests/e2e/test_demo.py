"""`orbit demo`: from nothing to the verdict, twice in a row, with nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.support.orbit_up import ROOT, clean_environment, command

EXPECTED = ROOT / "examples" / "keyed-concurrency" / "expected.txt"


def test_twice_in_a_row(tmp_path: Path) -> None:
    """The same lines on standard output each time; the temporary home is gone afterwards."""
    for _ in range(2):
        done = subprocess.run(
            command("demo"),
            env=clean_environment(TMPDIR=str(tmp_path)),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == EXPECTED.read_text(encoding="utf-8")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("inherited", [signal.SIG_DFL, signal.SIG_IGN], ids=["terminal", "background"])
def test_interrupted(tmp_path: Path, inherited: signal.Handlers) -> None:
    """Ctrl-C while it works ends everything that it started, and its home, however a shell has started it."""
    process = subprocess.Popen(
        command("demo"),
        preexec_fn=partial(signal.signal, signal.SIGINT, inherited),  # noqa: PLW1509 - nothing else runs here
        env=clean_environment(TMPDIR=str(tmp_path)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process.stderr:
        for line in process.stderr:
            if "starting api" in line:
                process.send_signal(signal.SIGINT)
                break
        process.stderr.read()
    assert process.wait(60) == 1
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in _command_lines()


def _command_lines() -> str:
    """The command lines of all processes but this one."""
    texts = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            try:
                texts.append((folder / "cmdline").read_bytes().decode(errors="replace"))
            except OSError:
                continue
    return "\n".join(texts)
