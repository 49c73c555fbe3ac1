"""The tracked Markdown files, taken apart for the tests of the documentation."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.source_tree import ROOT, tracked_files

_FENCE = re.compile(r"^( *)```.*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_COPY = re.compile(r"^( *)<!-- file: (\S+) -->\n\1```\w*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
_TEST_NAME = re.compile(r"`(test_\w+)`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A fenced block that says which file it shows."""

    page: Path
    file: str
    text: str


def pages() -> list[Path]:
    """Every tracked Markdown file, relative to the root."""
    return [file for file in tracked_files() if file.suffix == ".md"]


def read(page: Path | str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def links(page: Path) -> list[str]:
    """Targets of a page's links, code blocks aside."""
    return _LINK.findall(_FENCE.sub("", read(page)))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, spelled as code hosts spell them."""
    prose = _FENCE.sub("", read(page))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(prose)}


def copied_blocks() -> list[Copied]:
    """All blocks marked with `<!-- file: … -->`."""
    return [
        Copied(page=page, file=found[2], text=textwrap.dedent(found[3]))
        for page in pages()
        for found in _COPY.finditer(read(page))
    ]


def named_tests(page: Path) -> set[str]:
    """The tests that a page names as its proofs."""
    return set(_TEST_NAME.findall(read(page)))


def table(page: str, header: str) -> list[list[str]]:
    """The rows of the table under the header line `header`, as stripped cells."""
    lines = read(page).splitlines()
    start = lines.index(header) + 2
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
        rows.append([cell.strip() for cell in cells])
    return rows
