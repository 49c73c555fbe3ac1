"""What a daemon says to arguments: it takes none but `--help`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

_DOES: Final = {
    "api": "Serves the HTTP API on ORBIT_HTTP_ADDR.",
    "dispatch": "Serves workers on ORBIT_DISPATCH_ADDR: claims, Starts, renewals, results.",
    "recover": "Ends lapsed leases and passed deadlines; clears away what nothing needs any more.",
}
_TEXT: Final = """\
Usage: orbit-{name}

  {does}

  Takes no options: configured by ORBIT_… environment variables (docs/configuration.md), at least ORBIT_MYSQL_DSN.
  Runs until SIGTERM or Ctrl-C, then finishes what is in hand; any number may run.

  Examples:
    ORBIT_MYSQL_DSN=mysql://orbit:secret@db.internal/orbit orbit-{name}
    orbit up                       all three, with a private database

  Exit codes: 0 stopped as asked, 1 can't start or failed, 2 wrong usage.
"""


def usage(name: str) -> str:
    """Return the help of `orbit-{name}`."""
    return _TEXT.format(name=name, does=_DOES[name])


def answer_arguments(name: str, arguments: Sequence[str]) -> int:
    """Print the help that was asked for, or refuse; return the exit code."""
    if list(arguments) in (["--help"], ["-h"]):
        sys.stdout.write(usage(name))
        return 0
    sys.stderr.write(f"orbit-{name}: takes no arguments but --help\n")
    return 2
