"""The machine's own apt configuration says where packages come from, in either of apt's formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbit.localdb.errors import AptError
from orbit.localdb.sources import (
    Distribution,
    Source,
    other_suite,
    own_release,
    read_distribution,
    read_sources,
)

BOOKWORM = Distribution(name="debian", codename="bookworm")
STANZAS = """\
# a comment
Types: deb
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
# another comment
Signed-By: /usr/share/keyrings/archive.gpg

Types: deb deb-src
URIs: http://mirror.example/security
Suites: bookworm-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBF

Types: deb
URIs: http://vendor.example/tools
Suites: nodistro
Components: main

Enabled: no
Types: deb
URIs: http://mirror.example/off
Suites: bookworm
Components: main

Types: deb-src
URIs: http://mirror.example/sources
Suites: bookworm
Components: main
"""
LINES = """\
# deb http://mirror.example/commented bookworm main
deb http://mirror.example/debian bookworm main contrib # the base
deb [arch=amd64 signed-by=/usr/share/keyrings/archive.gpg] http://mirror.example/security bookworm-security main
deb-src http://mirror.example/debian bookworm main
deb http://vendor.example/tools stable-vendor extra
"""


def written(folder: Path, name: str, text: str) -> Path:
    """Write an apt configuration file and return the configuration's folder."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return folder


def test_stanzas_are_read_and_others_left_out(tmp_path: Path) -> None:
    """Enabled binary stanzas of the own release remain, with their keyrings or inline keys."""
    etc = written(tmp_path, "sources.list.d/system.sources", STANZAS)
    base, security = own_release(read_sources(etc), BOOKWORM)
    assert base == Source(
        uris=("http://mirror.example/debian",),
        suites=("bookworm", "bookworm-updates"),
        components=("main", "contrib"),
        signed_by="/usr/share/keyrings/archive.gpg",
    )
    assert security.suites == ("bookworm-security",)
    assert security.signed_by is not None
    assert "BEGIN PGP PUBLIC KEY BLOCK" in security.signed_by


def test_lines_are_read_with_their_options(tmp_path: Path) -> None:
    """Comments, sources and third parties are left out; the keyring option is kept."""
    etc = written(tmp_path, "sources.list", LINES)
    base, security = own_release(read_sources(etc), BOOKWORM)
    assert (base.uris, base.components, base.signed_by) == (
        ("http://mirror.example/debian",),
        ("main", "contrib"),
        None,
    )
    assert (security.suites, security.signed_by) == (
        ("bookworm-security",),
        "/usr/share/keyrings/archive.gpg",
    )


def test_an_inline_key_survives_being_written_again(tmp_path: Path) -> None:
    """A source that is printed and read back is the same source."""
    etc = written(tmp_path / "a", "sources.list.d/system.sources", STANZAS)
    source = own_release(read_sources(etc), BOOKWORM)[1]
    again = written(tmp_path / "b", "sources.list.d/again.sources", source.text())
    assert read_sources(again) == [source]


def test_another_suite_comes_from_the_base_archive(tmp_path: Path) -> None:
    """The suite with MySQL is taken from the archive of the plain release, not from security or a third party."""
    swapped = STANZAS.split("\n\n")
    etc = written(
        tmp_path, "sources.list.d/system.sources", "\n\n".join([swapped[1], swapped[2], swapped[0]])
    )
    (source,) = other_suite(read_sources(etc), BOOKWORM, "sid")
    assert (source.uris, source.suites, source.components) == (
        ("http://mirror.example/debian",),
        ("sid",),
        ("main",),
    )


def test_a_machine_without_sources_is_reported(tmp_path: Path) -> None:
    """No archive, or only foreign ones: one clear line each."""
    with pytest.raises(AptError, match="no apt sources"):
        read_sources(tmp_path)
    etc = written(tmp_path, "sources.list", "deb http://vendor.example/tools nodistro main\n")
    with pytest.raises(AptError, match="bookworm"):
        own_release(read_sources(etc), BOOKWORM)


def test_the_distribution_is_read(tmp_path: Path) -> None:
    """Names come with and without quotes; a missing file gives empty ones."""
    file = tmp_path / "os-release"
    file.write_text('PRETTY_NAME="Any Linux"\nID=debian\nVERSION_CODENAME="bookworm"\n')
    assert read_distribution(file) == BOOKWORM
    assert read_distribution(tmp_path / "missing") == Distribution(name="", codename="")
