"""What a driver error means: contention, a lost connection, bad data, or something we must not hide.

Classified by number, never by class: PyMySQL raises CHECK violations and overflows as OperationalError.
"""

from __future__ import annotations

from enum import Enum

from pymysql.err import InterfaceError, MySQLError

CONTENTION = frozenset({1213, 1205, 1020, 1180, 3572, 1317, 1969, 3024})
LOST = frozenset({1053, 1290, 1836, 1047, 1927, 2002, 2003, 2006, 2013, 2014, 2055, 4031})
BAD_DATA = frozenset({1048, 1062, 1264, 1292, 1366, 1406, 1690, 3819, 4025})
# What the driver says by itself (CR_ERROR_FIRST to CR_ERROR_LAST).
_DRIVERS_OWN = range(2000, 3000)
DEADLOCK = 1213
LOCK_TIMEOUT = 1205


class Failure(Enum):
    """How the transaction runner treats an error."""

    CONTENTION = "roll back and rerun the whole transaction"
    LOST = "discard the connection; where a COMMIT was sent the outcome is unknown"
    BAD_DATA = "the guilty operation of a group is INTERNAL, the others are rerun"
    OTHER = "raise"


def error_number(error: MySQLError) -> int:
    """Return the server's or client's error number, 0 when the driver gives none."""
    first = error.args[0] if error.args else 0
    return first if isinstance(first, int) else 0


def is_answer(error: MySQLError) -> bool:
    """Tell whether the server said this, and not the driver for want of an answer."""
    return error_number(error) not in {0, *_DRIVERS_OWN}


def describe(error: MySQLError) -> str:
    """Return one line for people, such as "the database refuses: Access denied for user … (1045)"."""
    text = error.args[-1] if error.args else type(error).__name__
    number = error_number(error)
    return f"the database refuses: {text}" + (f" ({number})" if number else "")


def classify(error: MySQLError) -> Failure:
    """Sort a driver error into one of the four treatments."""
    number = error_number(error)
    if number in CONTENTION:
        return Failure.CONTENTION
    # PyMySQL reports a connection that it has already closed itself as InterfaceError(0, "").
    if number in LOST or isinstance(error, InterfaceError):
        return Failure.LOST
    if number in BAD_DATA:
        return Failure.BAD_DATA
    return Failure.OTHER


# What `connect` and a cursor raise, for callers outside of the store that wait for a server or report its refusal.
DriverError = MySQLError
