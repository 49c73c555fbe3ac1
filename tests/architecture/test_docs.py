"""What the documentation says of other files is true: links, copied blocks, named tests, numbered decisions."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.architecture.markdown import anchors, copied_blocks, links, named_tests, pages, read
from tests.architecture.source_tree import ROOT, python_files

README_MAX_LINES = 150
SHOWN = {
    "examples/keyed-concurrency/expected.txt",
    "examples/quickstart/submit.sh",
    "examples/quickstart/worker.py",
}


def test_links_lead_somewhere() -> None:
    """Every relative link names a file that is there, and its anchor a heading in it."""
    broken = []
    for page in pages():
        for link in links(page):
            target, _, anchor = link.partition("#")
            if "://" in target or target.startswith("mailto:"):
                continue
            file = (page.parent / target) if target else page
            if not (ROOT / file).exists() or (anchor and anchor not in anchors(file)):
                broken.append(f"{page}: {link}")
    assert broken == []


def test_shown_files_are_shown_as_they_are() -> None:
    """A block that says which file it shows holds that file's text, and the README shows what a newcomer runs."""
    blocks = copied_blocks()
    wrong = [
        f"{block.page}: {block.file}"
        for block in blocks
        if block.text.rstrip("\n") != read(block.file).rstrip("\n")
    ]
    assert wrong == []
    assert {block.file for block in blocks if block.page == Path("README.md")} == SHOWN


def test_the_readme_is_short() -> None:
    assert len(read("README.md").splitlines()) < README_MAX_LINES


def test_named_proofs_exist() -> None:
    """A test that a page names as a proof is in the tree."""
    known = {
        node.name
        for file in python_files("tests", "sdk")
        for node in ast.walk(ast.parse(read(file)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }
    missing = {str(page): names for page in pages() if (names := named_tests(page) - known)}
    assert missing == {}
    assert len(named_tests(Path("docs/plan.md"))) > 50


def test_decisions_are_numbered_and_listed() -> None:
    """0001, 0002, … without gaps, each with its state, each in the list."""
    folder = ROOT / "docs" / "decisions"
    files = sorted(file.name for file in folder.glob("[0-9]*.md"))
    assert [name[:4] for name in files] == [f"{number:04}" for number in range(1, len(files) + 1)]
    listed = re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", read("docs/decisions/README.md"))
    assert listed == files
    for name in files:
        text = read(f"docs/decisions/{name}")
        assert text.startswith(f"# {name[:4]} ")
        assert "\nState: " in text
