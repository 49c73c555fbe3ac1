"""Actions and queue scopes."""

from __future__ import annotations

import pytest

from orbit.domain import permissions
from orbit.domain.errors import InvalidArgument

SPECIFIED = """queues:read queues:manage tasks:submit tasks:read tasks:cancel tasks:review tasks:retry tasks:audit:read
workers:connect workers:consume workers:read schedules:read schedules:manage events:subscribe events:consume
workflows:publish workflows:execute workflows:read workflows:control workflows:signal workflows:recover
workflows:audit:read""".split()  # noqa: SIM905 - the specification's own list


def test_the_actions_are_those_of_the_specification() -> None:
    assert frozenset(SPECIFIED) == permissions.ACTIONS


def test_a_first_credential_manages_nothing_but_queues() -> None:
    implicit = permissions.BOOTSTRAP_ACTIONS | permissions.WORKER_ACTIONS
    assert implicit < permissions.ACTIONS
    assert not implicit & {"tasks:review", "tasks:retry", "tasks:audit:read", "schedules:manage"}


def test_unknown_or_no_actions_are_refused() -> None:
    assert permissions.parse_actions(["tasks:read"]) == {"tasks:read"}
    for names in (["tasks:read", "tasks:*"], ["Tasks:read"], []):
        with pytest.raises(InvalidArgument):
            permissions.parse_actions(names)


def test_all_queues_reach_every_queue_and_an_empty_list_reaches_none() -> None:
    assert permissions.ALL_QUEUES.is_all
    assert permissions.ALL_QUEUES.reaches(b"x" * 16)
    nothing = permissions.Scope(queues=frozenset())
    assert not nothing.is_all
    assert not nothing.reaches(b"a" * 16)


def test_equal_scopes_alone_share_their_canonical_bytes() -> None:
    scopes = [None, frozenset[bytes](), frozenset({b"a" * 16}), frozenset({b"a" * 16, b"b" * 16})]
    seen = {permissions.Scope(queues=queues).canonical() for queues in scopes}
    assert len(seen) == len(scopes)
