"""One request as the endpoints see it, whichever way it was dispatched."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from orbit.api.body import Body, Receive, StreamedBody
from orbit.api.envelope import Reply, new_request_id
from orbit.domain.errors import InvalidArgument


class Exchange:
    """The request's parts, and the id under which answer and log speak of it.

    `headers` are lower-case names with values, in order; `query` is what stood behind the question mark.
    """

    __slots__ = ("body", "headers", "method", "params", "path", "query", "request_id")

    def __init__(
        self, method: str, path: str, query: bytes, headers: Sequence[tuple[bytes, bytes]], body: Body
    ) -> None:
        self.request_id = new_request_id()
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.body = body
        self.params: Mapping[str, str] = {}

    @classmethod
    def of_scope(cls, scope: Mapping[str, Any], receive: Receive) -> Exchange:
        """Return the exchange of an ASGI request."""
        headers = scope["headers"]
        return cls(
            scope["method"], scope["path"], scope["query_string"], headers, StreamedBody(receive, headers)
        )

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


Direct = Callable[[Exchange], Awaitable[Reply]]
