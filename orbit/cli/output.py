"""The merged log of several processes: each line behind the name of its process, in colour on a terminal."""

from __future__ import annotations

import os
from typing import TextIO

import click

COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan")


class MergedLog:
    """Writes whole lines to one stream, in the order of their arrival."""

    def __init__(self, stream: TextIO, names: list[str]) -> None:
        self._stream = stream
        self._is_coloured = stream.isatty() and not os.environ.get("NO_COLOR")
        self._width = max(map(len, [*names, "orbit"]))
        self._colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}

    def write(self, name: str, line: str) -> None:
        prefix = f"{name:<{self._width}} |"
        if self._is_coloured:
            prefix = click.style(prefix, fg=self._colours.get(name, "white"), bold=name not in self._colours)
        self._stream.write(f"{prefix} {line}\n")
        self._stream.flush()

    def say(self, line: str) -> None:
        """Write a line of the supervisor itself."""
        self.write("orbit", line)
