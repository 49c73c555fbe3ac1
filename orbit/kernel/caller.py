"""The records of who asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from orbit.domain.digest import receipt_id
from orbit.domain.errors import NotFound, PermissionDenied, Unauthenticated
from orbit.domain.permissions import Scope
from orbit.domain.tokens import parse_token


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What a presented token proves: which credential, and the digest that must equal the stored one."""

    credential_id: bytes
    digest: bytes

    @classmethod
    def of_header(cls, value: str | None) -> Self:
        """Return the token of an Authorization header; `Unauthenticated` unless it is a well-formed bearer token."""
        scheme, _, credentials = (value or "").partition(" ")
        parsed = parse_token(credentials.strip()) if scheme.lower() == "bearer" else None
        if parsed is None:
            raise Unauthenticated("a bearer token is required")
        return cls(credential_id=parsed[0], digest=parsed[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A credential that is valid now, as read inside the present transaction."""

    credential_id: bytes
    application_id: bytes
    namespace_id: bytes
    actions: frozenset[str]
    scope: Scope

    def identity(self, action: str, idempotency_key: str) -> bytes:
        """Return the 32-byte identity of this caller's command: the primary key of its receipt."""
        return receipt_id(self.application_id, self.namespace_id, action, idempotency_key)

    def require(self, action: str) -> None:
        """Raise `PermissionDenied` unless the action was granted explicitly."""
        if action not in self.actions:
            raise PermissionDenied(f"the credential lacks the action {action}")

    def require_all_queues(self) -> None:
        """Raise `PermissionDenied` unless the scope covers all queues of the namespace."""
        if not self.scope.is_all:
            raise PermissionDenied("the credential's scope doesn't cover all queues")

    def may_see(self, namespace_id: bytes, queue_id: bytes) -> bool:
        return namespace_id == self.namespace_id and self.scope.reaches(queue_id)

    def require_visible(self, namespace_id: bytes, queue_id: bytes, what: str) -> None:
        """Raise `NotFound` for a resource outside the caller's namespace or queue scope."""
        if not self.may_see(namespace_id, queue_id):
            raise NotFound(f"{what} not found")
