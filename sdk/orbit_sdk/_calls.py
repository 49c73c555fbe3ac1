"""One HTTP call: request bytes, the envelope of the answer, and errors as exceptions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from orbit_sdk._errors import APIError, OutcomeUnknown, TransportError, parse_retry_after
from orbit_sdk._http import Request, Response, Transport
from orbit_sdk._models import ErrorEnvelope

T = TypeVar("T")
# Answers of a proxy in front of the API: whether the API has seen the request, nobody knows.
_GATEWAY_STATUSES: Final = frozenset({502, 503, 504})
_VISIBLE: Final = re.compile("[!-~]+")
_ERROR_DECODER: Final = msgspec.json.Decoder(ErrorEnvelope, strict=False)


class Calls:
    """Sends commands through a transport with this credential and prefix."""

    def __init__(self, transport: Transport, token: str, *, authority: str, prefix: str = "") -> None:
        if not _VISIBLE.fullmatch(token or "-"):
            raise ValueError("a token is visible ASCII")
        self._transport = transport
        self._prefix = prefix
        self._headers = [(b"Host", authority.encode("ascii")), (b"Accept", b"application/json")]
        if token:
            self._headers.append((b"Authorization", b"Bearer " + token.encode("ascii")))

    async def read(
        self, path: str, decoder: msgspec.json.Decoder[T], query: Mapping[str, str] | None = None
    ) -> T:
        """GET one resource."""
        target = self._prefix + path
        if query:
            target += "?" + urlencode(query, quote_via=quote)
        request = Request(method="GET", target=target, headers=self._headers, body=b"", is_write=False)
        response = await self._transport.send(request)
        return _decode(request, response, decoder)

    async def write(self, path: str, body: bytes, decoder: msgspec.json.Decoder[T], *, key: str | None) -> T:
        """POST one command under its idempotency key, exactly once."""
        headers = [
            *self._headers,
            (b"Content-Type", b"application/json"),
            (b"Content-Length", b"%d" % len(body)),
        ]
        if key is not None:
            headers.append((b"Idempotency-Key", _checked_key(key)))
        request = Request(
            method="POST", target=self._prefix + path, headers=headers, body=body, is_write=True
        )
        response = await self._transport.send(request)
        return _decode(request, response, decoder)


def segment(text: str) -> str:
    """An id as one segment of a path, whatever it contains."""
    return quote(text, safe="")


def _checked_key(key: str) -> bytes:
    if len(key) > 191 or not _VISIBLE.fullmatch(key):
        raise ValueError("an idempotency key is 1 to 191 visible ASCII characters")
    return key.encode("ascii")


def _decode(request: Request, response: Response, decoder: msgspec.json.Decoder[T]) -> T:
    if response.status >= 300:
        raise _refusal(request, response)
    try:
        return decoder.decode(response.body)
    except (msgspec.DecodeError, RecursionError) as exc:
        text = f"{request.method} {request.target.partition('?')[0]}: unreadable answer: {exc}"
        raise (OutcomeUnknown(text) if request.is_write else TransportError(text)) from exc


def _refusal(request: Request, response: Response) -> Exception:
    retry_after = parse_retry_after(
        response.headers.get(b"retry-after", b"").decode("ascii", "replace") or None
    )
    try:
        envelope = _ERROR_DECODER.decode(response.body)
    except (msgspec.DecodeError, RecursionError):
        if request.is_write and response.status in _GATEWAY_STATUSES:
            return OutcomeUnknown(f"{request.method} {request.target}: a gateway answered {response.status}")
        return APIError(
            f"HTTP_{response.status}", response.status, "not an answer of Orbit", retry_after=retry_after
        )
    request_id = envelope.request_id or response.headers.get(b"x-request-id", b"").decode("ascii", "replace")
    return APIError(
        envelope.error.code,
        response.status,
        envelope.error.message,
        request_id=request_id,
        retry_after=retry_after,
        details=envelope.error.details,
    )
