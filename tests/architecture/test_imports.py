"""Who may import what: the layers of the server, the homes of third-party libraries, the independence of the SDK."""

from __future__ import annotations

from importlinter.cli import lint_imports

from tests.architecture.source_tree import ROOT, importers, is_in, python_files

SQL_DRIVERS = {"sqlalchemy", "pymysql"}
EVENT_LOOPS = {"trio", "trio_websocket", "hypercorn", "quart", "quart_trio", "asyncio"}
CORE = ("orbit/domain", "orbit/store", "orbit/kernel", "orbit/pulse", "orbit/weave", "orbit/localdb")


def test_the_layers_import_downwards_only() -> None:
    """The import contracts of pyproject.toml hold."""
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


def test_the_tree_is_read() -> None:
    """The searches below look at real files: they find the imports of this package's own rules."""
    assert importers({"ast"}, "tests/architecture")
    assert len(python_files("orbit")) > 5


def test_sql_drivers_are_imported_only_by_the_store() -> None:
    """`orbit/store` is the one home of SQL."""
    found = importers(SQL_DRIVERS, "orbit", "sdk", "bench", "examples")
    assert {file for file in found if not file.is_relative_to("orbit/store")} == set()


def test_the_core_knows_no_event_loop() -> None:
    """Transactions are plain functions: trio and the transports appear in runtime and the edges only."""
    assert importers(EVENT_LOOPS, *CORE) == {}


def test_the_domain_is_pure() -> None:
    """Rules need the standard library and msgspec only, and no I/O of it."""
    io = {"socket", "subprocess", "threading", "urllib", "http", "structlog", "logging"}
    assert importers(io, "orbit/domain") == {}


def test_localdb_uses_store_and_domain_only() -> None:
    """Private database instances know connections, nothing of tasks or processes."""
    forbidden = {"orbit.runtime", "orbit.kernel", "orbit.pulse", "orbit.weave", "orbit.observe"}
    assert importers(forbidden, "orbit/localdb") == {}


def test_the_sdk_stands_alone() -> None:
    """The SDK imports nothing of the server and no SQL driver."""
    assert importers({"orbit", "alembic", *SQL_DRIVERS}, "sdk") == {}


def test_examples_use_the_sdk_only() -> None:
    """What users copy needs nothing of the server."""
    assert importers({"orbit"}, "examples") == {}


def test_migrations_are_frozen_text() -> None:
    """A migration never changes because the code does: it imports nothing of Orbit."""
    assert importers({"orbit", "orbit_sdk"}, "migrations") == {}


def test_imports_are_absolute() -> None:
    """One way to name a module, so that these searches see all of them."""
    relative = importers({"."}, "orbit", "sdk", "tests")
    assert not any(is_in(name, ".") for names in relative.values() for name in names)
