"""The form of an invariant's check, and words that several share."""

from __future__ import annotations

from typing import Final, NamedTuple

from orbit.domain.keys import NO_KEY

NO_KEY_HEX: Final = f"X'{NO_KEY.hex()}'"


class Check(NamedTuple):
    """One statement that selects a line of text for every violation of `name`.

    `{q}` in the text stands for the scope: the application of the rows of alias `q`, or everything.
    """

    name: str
    sql: str
    needs_process_privilege: bool = False


def task_text(alias: str = "t") -> str:
    """Return the arguments of CONCAT that name a task."""
    return f"'task ', LOWER(HEX({alias}.task_id))"
