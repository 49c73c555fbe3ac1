"""Which schema this release knows, and which one a database has; what every process checks before it serves."""

from __future__ import annotations

from typing import Final

from orbit.store.transaction import Tx

# The newest migration's id; a test compares it with the migrations themselves.
KNOWN_HEAD: Final = "000001"
# Where texts are kept that people and programs choose. Converted tables would lose characters, or hold keys to be equal
# that differ in their bytes.
_OTHER_TEXT = """
SELECT table_name, column_name, collation_name FROM information_schema.columns
WHERE table_schema = DATABASE() AND collation_name NOT IN ('utf8mb4_bin', 'ascii_bin')
  AND table_name IN ('tasks', 'attempts', 'queues', 'receipts', 'concurrency_keys', 'audits')
ORDER BY table_name, ordinal_position LIMIT 1
"""


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
    """Raise `SchemaMismatch` unless the database has exactly the schema of this release, its texts in our charsets."""
    revision = read_revision(tx)
    if revision == KNOWN_HEAD:
        _require_texts(tx)
        return
    if revision is None:
        raise SchemaMismatch("the database has no schema: run `orbit-migrate up`")
    if is_newer(revision):
        raise SchemaMismatch(newer_message(revision))
    raise SchemaMismatch(
        f"the database's schema is {revision}, this release needs {KNOWN_HEAD}: run `orbit-migrate up`"
    )


def _require_texts(tx: Tx) -> None:
    other = tx.row(_OTHER_TEXT)
    if other is not None:
        raise SchemaMismatch(
            f"the column {other[0]}.{other[1]} is {other[2]}, this release needs utf8mb4_bin or ascii_bin:"
            " somebody has converted the table; restore its columns as `orbit-migrate sql` prints them"
        )


def is_newer(revision: str) -> bool:
    """Tell whether a migration id is unknown to this release; ids are numbers with leading zeros."""
    return not revision.isdecimal() or int(revision) > int(KNOWN_HEAD)


def newer_message(revision: str) -> str:
    return (
        f"the database's schema is {revision}, newer than {KNOWN_HEAD}, the newest that this release knows:"
        " install the newer release"
    )
