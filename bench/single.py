"""A daemon whose groups hold one command: what Orbit would be without group commit.

Usage: python -m bench.single api|dispatch. Only the bounds of groups differ from the real daemons.
"""

from __future__ import annotations

import sys
from unittest.mock import patch

from orbit.api import services
from orbit.api.main import main as api
from orbit.scheduler import application
from orbit.scheduler.main import main as dispatch


def main() -> None:
    """Run one daemon with groups of one."""
    with (
        patch.object(services, "GROUP_SUBMITS_MAX", 1),
        patch.object(services, "GROUP_OTHERS_MAX", 1),
        patch.object(application, "GROUP_OTHERS_MAX", 1),
    ):
        {"api": api, "dispatch": dispatch}[sys.argv.pop(1)]()


if __name__ == "__main__":
    main()
