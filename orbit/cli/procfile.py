"""The processes of the Procfile, and how each is started here."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import orbit

PACKAGE = Path(orbit.__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """One process: the name before its log lines, and its command."""

    name: str
    command: tuple[str, ...]


def read_procfile() -> list[ProcessSpec]:
    """Return the processes of the Procfile: the checkout's, else the installed one."""
    for path in (PACKAGE.parent / "Procfile", Path(__file__).parent / "Procfile"):
        if path.is_file():
            return parse_procfile(path.read_text(encoding="utf-8"))
    raise FileNotFoundError("no Procfile beside the package")


def parse_procfile(text: str) -> list[ProcessSpec]:
    """Parse `name: command` lines; blank lines and lines that start with # are skipped."""
    specs = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, command = line.partition(":")
        if not colon or not command.strip():
            raise ValueError(f"Procfile: not a `name: command` line: {line}")
        first, *rest = shlex.split(command)
        specs.append(ProcessSpec(name=name.strip(), command=(*find_program(first), *rest)))
    return specs


def find_program(name: str) -> tuple[str, ...]:
    """Return how to start one of Orbit's programs with this very interpreter; others are left to the PATH."""
    in_checkout = PACKAGE.parent / "bin" / name
    if in_checkout.is_file():
        return (sys.executable, str(in_checkout))
    beside = Path(sys.executable).parent / name
    if beside.is_file():
        return (str(beside),)
    return (shutil.which(name) or name,)
