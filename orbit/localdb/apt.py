"""Packages of the distribution unpacked into a directory, without root and without touching the system's apt state.

Standard library only: the set-up of a checkout uses it before anything is installed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from orbit.localdb.errors import AptError
from orbit.localdb.sources import Source, own_release, read_distribution, read_sources

Say = Callable[[str], None]
COMMAND_TIMEOUT_SECONDS = 600


def cache_home() -> Path:
    """Return the user's cache directory for Orbit (`$XDG_CACHE_HOME/orbit`, else `~/.cache/orbit`)."""
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    root = configured if configured.is_absolute() else Path.home() / ".cache"
    return root / "orbit"


def silent(_text: str) -> None:
    """Report no progress."""


def fetch_once(
    packages: Sequence[str],
    tree: Path,
    *,
    sources: Sequence[Source] | None = None,
    without: Collection[str] = (),
    closure: bool = True,
    say: Say = silent,
) -> Path:
    """Return `tree` with these packages unpacked in it, fetching them unless it is there.

    Processes that ask at the same time fetch once: the others wait. `tree` is complete or absent, never partial.

    Raises:
        AptError: apt is missing, has no such package or reaches no mirror.
    """
    if tree.is_dir():
        return tree
    tree.parent.mkdir(parents=True, exist_ok=True)
    with (tree.parent / f".{tree.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not tree.is_dir():
            fetch(packages, tree, sources=sources, without=without, closure=closure, say=say)
    return tree


def fetch(
    packages: Sequence[str],
    tree: Path,
    *,
    sources: Sequence[Source] | None = None,
    without: Collection[str] = (),
    closure: bool = True,
    say: Say = silent,
) -> None:
    """Unpack packages into `tree`, which must not exist.

    `sources` are this machine's own by default; `closure` adds all that the packages depend on, except packages whose
    name starts with one of `without`.

    Raises:
        AptError: apt is missing, has no such package or reaches no mirror.
    """
    for tool in ("apt-get", "dpkg"):
        if shutil.which(tool) is None:
            raise AptError(f"{tool} is not on PATH")
    if sources is None:
        sources = own_release(read_sources(), read_distribution())
    tree.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tree.parent, prefix=f".{tree.name}-") as temporary:
        state = Path(temporary)
        apt = _private_apt(state, sources)
        say("reading the package lists")
        _run([*apt, "update"])
        names = _closure(apt, packages, without) if closure else list(packages)
        say(f"downloading {len(names)} packages")
        archives = state / "archives"
        archives.mkdir()
        _run([*apt, "download", *names], cwd=archives)
        say("unpacking")
        root = state / "root"
        root.mkdir()
        for archive in sorted(archives.glob("*.deb")):
            _run(["dpkg", "-x", str(archive), str(root)])
        root.chmod(0o755)
        root.rename(tree)


def _private_apt(state: Path, sources: Sequence[Source]) -> list[str]:
    for folder in ("lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True)
    (state / "status").touch()
    listed = state / "orbit.sources"
    listed.write_text("\n".join(source.text() for source in sources), encoding="utf-8")
    options = {
        "Dir::Etc::sourcelist": listed,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::State": state,
        "Dir::State::Lists": state / "lists",
        "Dir::State::status": state / "status",
        "Dir::Cache": state / "cache",
        # The private folders belong to the caller, not to apt's own user.
        "APT::Sandbox::User": "root",
        "APT::Get::List-Cleanup": "0",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        # Index files that only desktop tools read.
        "Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled": "false",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
        "Acquire::IndexTargets::deb::DEP-11-icons::DefaultEnabled": "false",
        "Acquire::IndexTargets::deb::DEP-11-icons-hidpi::DefaultEnabled": "false",
        "Acquire::IndexTargets::deb::DEP-11-icons-small::DefaultEnabled": "false",
    }
    return ["apt-get", "-q", *(f"-o{name}={value}" for name, value in options.items())]


def _closure(apt: Sequence[str], packages: Sequence[str], without: Collection[str]) -> list[str]:
    printed = _run([*apt, "install", "-y", "--no-install-recommends", "--print-uris", *packages])
    names = []
    for line in printed.splitlines():
        # 'address' name_version_architecture.deb size digest
        if line.startswith("'"):
            name = line.split()[1].partition("_")[0]
            if not any(name.startswith(prefix) for prefix in without):
                names.append(name)
    if not names:
        raise AptError(f"apt lists nothing to fetch for {' '.join(packages)}")
    return names


def _run(command: Sequence[str], *, cwd: Path | None = None) -> str:
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        finished = subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise AptError(f"{command[0]} did not finish within {COMMAND_TIMEOUT_SECONDS} s") from None
    if finished.returncode:
        lines = [line for line in finished.stderr.splitlines() if line.startswith(("E:", "dpkg"))]
        raise AptError((lines or finished.stderr.strip().splitlines() or [f"{command[0]} failed"])[-1])
    return finished.stdout
