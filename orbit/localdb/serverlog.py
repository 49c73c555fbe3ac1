"""A server's error log: bounded, and read for why a start failed."""

from __future__ import annotations

from pathlib import Path

from orbit.localdb.errors import LocalDatabaseError, PortTaken

MAX_BYTES = 16 * 1024 * 1024
_TAIL_BYTES = 64 * 1024


class ServerLog:
    """The log of one server; `begin` marks where the present start's lines begin."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._start = 0

    def begin(self) -> None:
        """Mark the end of earlier starts' lines; set a large log aside."""
        size = self.file.stat().st_size if self.file.exists() else 0
        if size > MAX_BYTES:
            self.file.replace(self.file.with_suffix(".log.1"))
            size = 0
        self._start = size

    def failure(self) -> LocalDatabaseError:
        """Return why the server ended, by the last errors that it logged since `begin`."""
        errors = [line.partition("[ERROR]")[2].strip() for line in self._lines() if "[ERROR]" in line]
        reasons = [line for line in errors if not line.endswith("Aborting")] or self._lines()[-1:]
        if any("Address already in use" in line for line in reasons):
            return PortTaken(f"the database does not start: its port is in use; see {self.file}")
        reason = reasons[0] if reasons else "it logged no reason"
        return LocalDatabaseError(f"the database does not start: {reason}; see {self.file}")

    def _lines(self) -> list[str]:
        try:
            with self.file.open("rb") as file:
                file.seek(max(self._start, self.file.stat().st_size - _TAIL_BYTES))
                return file.read().decode("utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return []
