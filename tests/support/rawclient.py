"""A plain HTTP client that never repeats anything by itself, and can stop listening half-way."""

from __future__ import annotations

import http.client
import json
import socket
import time
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str | None:
        error = self.json.get("error")
        return None if error is None else str(error["code"])


class RawClient:
    """One caller of an API at `host:port`; a connection for each request."""

    def __init__(self, address: str, token: str, *, timeout: float = 15.0) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port, self._token, self._timeout = host, int(port), token, timeout

    def ask(self, method: str, path: str, body: Any = None, *, key: str | None = None) -> Reply:
        """Send one request and return its reply; OSError or HTTPException when there is none."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        try:
            data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            connection.request(method, path, body=data, headers=self._headers(key))
            answer = connection.getresponse()
            return Reply(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def send_and_leave(self, method: str, path: str, body: Any, *, key: str | None = None) -> None:
        """Send one request and close the connection without waiting for the reply."""
        data = json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self._host}", f"Content-Length: {len(data)}"]
        lines += [f"{name}: {value}" for name, value in self._headers(key).items()]
        with socket.create_connection((self._host, self._port), timeout=self._timeout) as sock:
            sock.sendall("\r\n".join([*lines, "", ""]).encode() + data)

    def ask_patiently(
        self, method: str, path: str, body: Any, *, key: str, attempts: int = 200, pause: float = 0.05
    ) -> Reply:
        """Repeat under the original identity until there is a reply that isn't 503; what a careful client does."""
        for _ in range(attempts):
            try:
                reply = self.ask(method, path, body, key=key)
            except (OSError, http.client.HTTPException):
                time.sleep(pause)
                continue
            if reply.status != 503:
                return reply
            time.sleep(pause)
        raise AssertionError(f"no answer to {method} {path} in {attempts} attempts")

    def _headers(self, key: str | None) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        return headers if key is None else {**headers, "Idempotency-Key": key}


def submit_body(queue_id: bytes, **fields: Any) -> dict[str, Any]:
    """Return the body of a submit to the test worker's handler."""
    return {
        "queue_id": queue_id.hex(),
        "handler": "work",
        "handler_version": "1",
        "payload_version": "1",
        "payload": {},
        **fields,
    }
