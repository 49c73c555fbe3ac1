"""What the tracked files may not hold, and how long they may grow."""

from __future__ import annotations

import re
import warnings

import pytest

from tests.architecture.source_tree import ROOT, python_files, tracked_files

# Written in pieces so that this file passes its own search.
HOSTS = (
    "pypi" + ".org",
    "python" + "hosted.org",
    "registry.npm" + "js",
    "deb." + "debian.org",
    "security." + "debian.org",
    "archive." + "ubuntu.com",
)
MACHINE_PATHS = ("/ro" + "ot/", "/tmp/" + "venv", "/wo" + "rk/", "/home/" + "[a-z]")
WARN_LINES = 250
MAX_LINES = 600
BINARY = {".png", ".jpg", ".ico", ".woff2"}


def occurrences(pattern: str) -> list[str]:
    """`file:line` of every match in a tracked text file."""
    expression, found = re.compile(pattern), []
    for file in tracked_files():
        if file.suffix in BINARY:
            continue
        for number, line in enumerate((ROOT / file).read_text(encoding="utf-8").splitlines(), start=1):
            if expression.search(line):
                found.append(f"{file}:{number}")
    return found


def test_no_package_registry_is_named() -> None:
    """Where packages come from is the business of the machine that installs them."""
    assert occurrences("|".join(re.escape(host) for host in HOSTS)) == []


def test_no_path_of_a_developers_machine_is_named() -> None:
    """The project runs wherever it is checked out."""
    assert occurrences(r"(?<![\w.$}])(?:" + "|".join(MACHINE_PATHS) + ")") == []


def test_the_search_finds_what_is_there() -> None:
    """A search that always comes back empty would prove nothing."""
    assert any(
        place.startswith("tests/architecture/test_files.py:") for place in occurrences("def occurr" + "ences")
    )


@pytest.mark.filterwarnings("default")
def test_modules_stay_small() -> None:
    """A module above 600 lines fails; one above 250 is reported as a candidate for a split."""
    lines = {
        f: len((ROOT / f).read_text(encoding="utf-8").splitlines())
        for f in python_files("orbit", "sdk", "tests", "bench")
    }
    large = {str(file): count for file, count in lines.items() if count > WARN_LINES}
    if large:
        warnings.warn(f"above {WARN_LINES} lines: {large}", stacklevel=1)
    assert {file: count for file, count in large.items() if count > MAX_LINES} == {}
