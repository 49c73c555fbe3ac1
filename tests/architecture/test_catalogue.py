"""The catalogue of faults and of failures seen elsewhere: each that Orbit has to survive has a test that names it."""

from __future__ import annotations

import ast
import re

from tests.architecture.markdown import read
from tests.architecture.source_tree import python_files

# F numbers are faults that we make, C numbers are failures that other systems had in public (docs/testing.md).
FAULTS = [*range(1, 22), 26, 27, 31, *range(33, 44), 49]
CASES = [1, 2, 3, 6, 7, 9, 10, 11, 14, 16, 18, 19, 20, 22, 28, 30, 31, *range(33, 41)]
WANTED = {f"F{number}" for number in FAULTS} | {f"C{number:02}" for number in CASES}
_IDENTIFIER = re.compile(r"\b[FC]\d{1,2}\b")


def proofs() -> dict[str, set[str]]:
    """Return by identifier the tests whose docstrings name it; a file's docstring speaks for the file's tests."""
    found: dict[str, set[str]] = {}
    for file in python_files("tests", "sdk"):
        for node in ast.walk(ast.parse(read(file))):
            is_test = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
                "test_"
            )
            if not is_test and not (isinstance(node, ast.Module) and file.name.startswith("test_")):
                continue
            name = getattr(node, "name", file.name)
            for identifier in _IDENTIFIER.findall(ast.get_docstring(node) or ""):  # type: ignore[arg-type]
                found.setdefault(identifier, set()).add(name)
    return found


def test_every_fault_and_case_has_a_test_that_names_it() -> None:
    assert sorted(WANTED - proofs().keys()) == []


def test_the_table_names_every_fault_and_case() -> None:
    """docs/testing.md lists each identifier, each with tests that are in the tree."""
    rows = re.findall(r"^\| ((?:[FC]\d+,? ?)+)\|.*`test_", read("docs/testing.md"), re.MULTILINE)
    listed = {identifier for row in rows for identifier in _IDENTIFIER.findall(row)}
    assert listed == WANTED
