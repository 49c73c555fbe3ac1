"""What the database server counts: statements, commits, log syncs, deadlocks, rows read."""

from __future__ import annotations

from typing import Final

from orbit.localdb.bundle import Flavour
from orbit.localdb.instance import Instance

Counts = dict[str, float]

# What runs inside transactions and reads; commits are counted apart.
_STATEMENTS: Final = (
    "Com_select",
    "Com_insert",
    "Com_insert_select",
    "Com_update",
    "Com_update_multi",
    "Com_delete",
    "Com_delete_multi",
    "Com_replace",
    "Com_set_option",
    "Com_begin",
)
_PLAIN: Final = {
    "commits": "Com_commit",
    "log_syncs": "Innodb_os_log_fsyncs",
    "log_bytes": "Innodb_os_log_written",
    "lock_waits": "Innodb_row_lock_waits",
}


def read_counts(instance: Instance) -> Counts:
    """Return the server's counts since it started, those that this flavour has; subtract two readings."""
    status = {str(name): value for name, value in instance.execute("SHOW GLOBAL STATUS")}
    counts = {ours: float(str(status[theirs])) for ours, theirs in _PLAIN.items() if theirs in status}
    counts["statements"] = sum(float(str(status.get(name, 0))) for name in _STATEMENTS)
    counts["deadlocks"] = _deadlocks(instance, status)
    return counts


def difference(after: Counts, before: Counts) -> Counts:
    """Return what was counted between two readings."""
    return {name: after[name] - before.get(name, 0.0) for name in after}


def _deadlocks(instance: Instance, status: dict[str, object]) -> float:
    if instance.flavour is Flavour.MARIADB:
        return float(str(status.get("Innodb_deadlocks", 0)))
    rows = instance.execute(
        "SELECT `COUNT` FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'"
    )
    return float(str(rows[0][0])) if rows else 0.0
