"""One request as the endpoints see it, whichever way it was dispatched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orbit.api.body import Body, Receive
from orbit.api.envelope import new_request_id
from orbit.domain.errors import InvalidArgument


class Exchange:
    """The request's parts, and the id under which answer and log speak of it."""

    __slots__ = ("body", "headers", "method", "params", "path", "query", "request_id")

    def __init__(self, scope: Mapping[str, Any], receive: Receive) -> None:
        self.request_id = new_request_id()
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self.headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.body = Body(receive, self.headers)
        self.params: Mapping[str, str] = {}

    def header(self, name: bytes, shown: str) -> str | None:
        """Return a header's text, None where it is missing.

        Raises: InvalidArgument naming `shown` if it is given twice.
        """
        found: bytes | None = None
        for key, value in self.headers:
            if key == name:
                if found is not None:
                    raise InvalidArgument("is given twice", field=shown)
                found = value
        return None if found is None else found.decode("latin-1")
