"""What must always hold (docs/testing.md), each check in one statement: it sees one instant of a busy database.

Nothing is locked and nothing is written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from orbit.store.failures import DriverError, error_number
from orbit.store.sql.invariant_check import Check
from orbit.store.sql.invariants_of_records import HYGIENE, LANES, RECORDS, RELATIONS
from orbit.store.sql.invariants_of_work import ATTEMPTS, COUNTERS, KEYS
from orbit.store.transaction import Tx

DETAILS_MAX: Final = 20
# The account may not see other sessions; a check that needs it is passed over.
_NO_PRIVILEGE: Final = frozenset({1044, 1142, 1227})
_SCOPE = re.compile(r"\{(\w+)\}")

CHECKS: Final = (*ATTEMPTS, *KEYS, *COUNTERS, *RECORDS, *LANES, *RELATIONS, *HYGIENE)


def select_violations(tx: Tx, check: Check, application_id: bytes | None = None) -> Sequence[str]:
    """Return a line for each violation of one check, at most 20, in all applications or in one."""
    params = [] if application_id is None else [application_id] * len(_SCOPE.findall(check.sql))
    scope = "TRUE" if application_id is None else r"\1.application_id = %s"
    try:
        rows = tx.rows(f"{_SCOPE.sub(scope, check.sql)} LIMIT {DETAILS_MAX}", params)
    except DriverError as error:
        if check.needs_process_privilege and error_number(error) in _NO_PRIVILEGE:
            return ()
        raise
    return [row[0] if isinstance(row[0], str) else bytes(row[0] or b"").decode() for row in rows]
