"""Where this machine gets its packages from, read from its own apt configuration; standard library only."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from orbit.localdb.errors import AptError

ETC_APT = Path("/etc/apt")
OS_RELEASE = Path("/etc/os-release")
_ROLLING = {"stable", "testing", "unstable", "sid", "oldstable", "devel"}
_ONE_LINE = re.compile(
    r"deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>.+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One archive: where, which suites and components, and the keyring that signs it (path or inline block)."""

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str | None = None

    def text(self) -> str:
        """Return the source as a deb822 stanza."""
        fields = {
            "Types": "deb",
            "URIs": " ".join(self.uris),
            "Suites": " ".join(self.suites),
            "Components": " ".join(self.components),
        }
        if self.signed_by:
            fields["Signed-By"] = self.signed_by
        return "\n".join(f"{name}: {value}" for name, value in fields.items()) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """The system's id (`debian`, `ubuntu`, …) and the code name of its release (empty when it has none)."""

    name: str
    codename: str


def read_distribution(path: Path = OS_RELEASE) -> Distribution:
    """Read which distribution this is; empty names where the file is missing."""
    fields = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition("=")
            fields[name] = value.strip().strip("\"'")
    return Distribution(name=fields.get("ID", ""), codename=fields.get("VERSION_CODENAME", ""))


def read_sources(etc: Path = ETC_APT) -> list[Source]:
    """Read every enabled binary archive, in both of apt's formats.

    Raises:
        AptError: the machine has none.
    """
    found: list[Source] = []
    parts = etc / "sources.list.d"
    for file in [etc / "sources.list", *sorted(parts.glob("*.list")), *sorted(parts.glob("*.sources"))]:
        if not file.is_file():
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        found.extend(_parse_stanzas(text) if file.suffix == ".sources" else _parse_lines(text))
    if not found:
        raise AptError("this machine has no apt sources")
    return found


def own_release(sources: list[Source], distribution: Distribution) -> list[Source]:
    """Keep the archives of the distribution's own release (with updates and security), without third parties.

    Raises:
        AptError: none of them is the distribution's own.
    """
    kept = []
    for source in sources:
        suites = tuple(suite for suite in source.suites if _is_own(suite, distribution.codename))
        if suites and "main" in source.components:
            kept.append(replace(source, suites=suites))
    if not kept:
        raise AptError(f"no apt source carries the suite {distribution.codename or '(unknown)'}")
    return kept


def other_suite(sources: list[Source], distribution: Distribution, suite: str) -> list[Source]:
    """Point the distribution's first own archive at another of its suites, component `main`."""
    own = own_release(sources, distribution)
    plain = [s for s in own if not any("-" in name for name in s.suites)] or [
        s for s in own if any("-" not in name for name in s.suites)
    ]
    return [replace((plain or own)[0], suites=(suite,), components=("main",))]


def _is_own(suite: str, codename: str) -> bool:
    stem = suite.partition("-")[0].partition("/")[0]
    return stem in _ROLLING or (bool(codename) and stem == codename)


def _parse_lines(text: str) -> list[Source]:
    found = []
    for raw in text.splitlines():
        match = _ONE_LINE.fullmatch(raw.partition("#")[0].strip())
        if match is None:
            continue
        options = dict(part.split("=", 1) for part in (match["options"] or "").split() if "=" in part)
        found.append(
            Source(
                uris=(match["uri"],),
                suites=(match["suite"],),
                components=tuple(match["components"].split()),
                signed_by=options.get("signed-by"),
            )
        )
    return found


def _parse_stanzas(text: str) -> list[Source]:
    kept = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    found = []
    for stanza in re.split(r"\n\s*\n", kept):
        fields = _fields(stanza)
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in {
            "no",
            "false",
        }:
            continue
        found.append(
            Source(
                uris=tuple(fields.get("uris", "").split()),
                suites=tuple(fields.get("suites", "").split()),
                components=tuple(fields.get("components", "").split()),
                signed_by=fields.get("signed-by"),
            )
        )
    return found


def _fields(stanza: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    name = ""
    for line in stanza.splitlines():
        if line[:1].isspace():
            fields[name] = fields.get(name, "") + "\n" + line
        elif ":" in line:
            name, _, value = line.partition(":")
            name = name.lower()
            fields[name] = value.strip()
    return fields
