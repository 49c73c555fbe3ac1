"""The tracked source files of this checkout, read for the architecture tests."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def tracked_files() -> list[Path]:
    """Every file that git tracks or would track, relative to the root; falls back to a walk outside of a repository."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, check=False)
    if listed.returncode == 0:
        names = [Path(name) for name in listed.stdout.decode().split("\0") if name]
    else:
        skipped = {".git", ".venv", ".orbit", "build", "dist", "__pycache__"}
        names = [p.relative_to(ROOT) for p in ROOT.rglob("*") if not skipped & set(p.relative_to(ROOT).parts)]
    return sorted(name for name in names if (ROOT / name).is_file())


def python_files(*folders: str) -> list[Path]:
    """The tracked `.py` files under these folders, relative to the root."""
    return [
        f
        for f in tracked_files()
        if f.suffix == ".py" and any(f.is_relative_to(folder) for folder in folders)
    ]


def imported_modules(file: Path) -> set[str]:
    """Dotted names of all modules that a file imports, wherever the import stands, type-checking blocks included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or ""))
    return found


def importers(packages: set[str], *folders: str) -> dict[Path, set[str]]:
    """Files under `folders` that import one of `packages` or something inside them, with the imports in question."""
    found = {}
    for file in python_files(*folders):
        names = {name for name in imported_modules(file) if any(is_in(name, package) for package in packages)}
        if names:
            found[file] = names
    return found


def is_in(module: str, package: str) -> bool:
    """Whether a dotted module name is this package or lies in it."""
    return module == package or module.startswith(package + ".")
