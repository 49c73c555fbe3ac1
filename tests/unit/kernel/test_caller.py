"""What a caller may do and see."""

from __future__ import annotations

import pytest

from orbit.domain.errors import NotFound, PermissionDenied
from orbit.domain.permissions import Scope
from orbit.kernel.caller import Caller

NAMESPACE, OTHER = b"n" * 16, b"o" * 16
NEAR, FAR = b"a" * 16, b"b" * 16


def test_a_missing_action_is_403_and_a_queue_out_of_scope_is_404() -> None:
    caller = Caller(
        credential_id=b"c" * 16,
        application_id=b"p" * 16,
        namespace_id=NAMESPACE,
        actions=frozenset({"tasks:read"}),
        scope=Scope(queues=frozenset({NEAR})),
    )
    caller.require("tasks:read")
    caller.require_visible(NAMESPACE, NEAR, "queue")
    with pytest.raises(PermissionDenied, match="tasks:submit"):
        caller.require("tasks:submit")
    for namespace_id, queue_id in ((NAMESPACE, FAR), (OTHER, NEAR)):
        with pytest.raises(NotFound):
            caller.require_visible(namespace_id, queue_id, "queue")
    with pytest.raises(PermissionDenied):
        caller.require_all_queues()
