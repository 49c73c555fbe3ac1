"""Packages are fetched once, completely or not at all, into the user's cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orbit.localdb.apt import cache_home, fetch_once
from orbit.localdb.errors import AptError

FETCH = "from orbit.localdb.bundle import fetch_faketime; print(fetch_faketime(say=print))"


def test_processes_that_ask_at_the_same_time_fetch_once(tmp_path: Path) -> None:
    """One of three downloads, all three get the same file."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", FETCH]
    askers = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    printed = [asker.communicate(timeout=120)[0].splitlines() for asker in askers]
    assert [asker.returncode for asker in askers] == [0, 0, 0]
    assert len({lines[-1] for lines in printed}) == 1
    assert Path(printed[0][-1]).is_relative_to(tmp_path)
    assert sum("downloading 1 packages" in lines for lines in printed) == 1
    assert [path.name for path in (tmp_path / "orbit").iterdir() if not path.name.endswith(".lock")] == [
        Path(printed[0][-1]).relative_to(tmp_path / "orbit").parts[0]
    ]


def test_a_failed_fetch_leaves_nothing(tmp_path: Path) -> None:
    """A package that doesn't exist is named, and no partial tree is taken for a complete one."""
    with pytest.raises(AptError, match="orbit-no-such-package"):
        fetch_once(["orbit-no-such-package"], tmp_path / "tree")
    assert [path.name for path in tmp_path.iterdir()] == [".tree.lock"]


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The XDG variable decides when it is absolute; else the cache is under the home directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_home() == tmp_path / "orbit"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_home() == tmp_path / ".cache" / "orbit"
