"""Which schema this release knows, and which one a database has; what every process checks before it serves."""

from __future__ import annotations

from typing import Final

from orbit.store.transaction import Tx

# The newest migration's id; a test compares it with the migrations themselves.
KNOWN_HEAD: Final = "000001"


class SchemaMismatch(Exception):
    """The database's schema is not the one this release works with; the message is one line that says what to do."""


def read_revision(tx: Tx) -> str | None:
    """Return the id of the database's newest migration, None for a database without a schema."""
    found = tx.value(
        "SELECT COUNT(*) FROM information_schema.tables"
        " WHERE table_schema = DATABASE() AND table_name = 'alembic_version'"
    )
    if not found:
        return None
    revision = tx.value("SELECT version_num FROM alembic_version")
    return None if revision is None else str(revision)


def require_schema(tx: Tx) -> None:
    """Raise `SchemaMismatch` unless the database has exactly the schema of this release."""
    revision = read_revision(tx)
    if revision == KNOWN_HEAD:
        return
    if revision is None:
        raise SchemaMismatch("the database has no schema: run `orbit-migrate up`")
    if is_newer(revision):
        raise SchemaMismatch(newer_message(revision))
    raise SchemaMismatch(
        f"the database's schema is {revision}, this release needs {KNOWN_HEAD}: run `orbit-migrate up`"
    )


def is_newer(revision: str) -> bool:
    """Tell whether a migration id is unknown to this release; ids are numbers with leading zeros."""
    return not revision.isdecimal() or int(revision) > int(KNOWN_HEAD)


def newer_message(revision: str) -> str:
    return (
        f"the database's schema is {revision}, newer than {KNOWN_HEAD}, the newest that this release knows:"
        " install the newer release"
    )
