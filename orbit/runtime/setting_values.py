"""Parsers for one setting's text each: a value, or ValueError in words that follow the variable's name."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from orbit.domain import limits, tokens

LOG_FORMATS: Final = ("console", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a process listens; port 0 lets the system choose."""

    host: str
    port: int

    @property
    def is_wildcard(self) -> bool:
        return _is_address(self.host) and ip_address(self.host).is_unspecified

    def with_port(self, port: int) -> Address:
        return Address(host=self.host, port=port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse `host:port` (IPv6 in brackets); ValueError otherwise."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("must write an IPv6 address in brackets, such as [::1]:8080")
    if not colon or not host or any(c.isspace() for c in host):
        raise ValueError("must be host:port, such as 127.0.0.1:8080")
    return Address(host=host, port=_number(port, 0, PORT_MAX, "port"))


def parse_hint_address(text: str) -> Address:
    """Parse an IP address and port that other nodes can send to; ValueError otherwise."""
    address = parse_address(text)
    if not _is_address(address.host):
        raise ValueError("must name an IP address")
    if address.is_wildcard:
        raise ValueError("must name the address by which other nodes reach this one, not a wildcard")
    return address


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _number(text: str, least: int, most: int, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and least <= int(text) <= most):
        raise ValueError(f"{what} must be a whole number from {least} to {most}")
    return int(text)


def parse_lease_ms(text: str) -> int:
    """Parse a lease in milliseconds; ValueError outside its range."""
    return _number(text, limits.LEASE_MIN_MS, limits.LEASE_MAX_MS, "milliseconds")


def parse_retention_days(text: str) -> int:
    """Parse days of retention, 0 for ever; ValueError outside its range."""
    if text == "0":
        return 0
    return _number(text, limits.RETENTION_DEFAULT_DAYS, limits.RETENTION_MAX_DAYS, "days (unless 0)")


def _url(text: str, schemes: tuple[str, ...]) -> str:
    try:
        parts = urlsplit(text)
        is_plain = parts.hostname and parts.port != 0 and not (parts.query or parts.fragment)
    except ValueError:
        is_plain = False
        parts = urlsplit("")
    if parts.scheme not in schemes or not is_plain:
        raise ValueError(f"must be a URL that starts with {' or '.join(f'{s}://' for s in schemes)}")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a user or password")
    return text.rstrip("/")


def parse_api_url(text: str) -> str:
    """Check an HTTP base URL; it comes back without a slash at its end."""
    return _url(text, ("http", "https"))


def parse_worker_url(text: str) -> str:
    """Check a WebSocket base URL; it comes back without a slash at its end."""
    return _url(text, ("ws", "wss"))


def parse_readable_file(text: str) -> Path:
    """Return the path of a file that this process may read; ValueError otherwise."""
    path = Path(text)
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None


def parse_log_format(text: str) -> str:
    """Check a log format."""
    return _one_of(text, LOG_FORMATS)


def parse_log_level(text: str) -> str:
    """Check a log level."""
    return _one_of(text, LOG_LEVELS)


def _one_of(text: str, choices: tuple[str, ...]) -> str:
    if text not in choices:
        raise ValueError(f"must be {', '.join(choices[:-1])} or {choices[-1]}")
    return text


def parse_token(text: str) -> str:
    """Check a bearer token without repeating it."""
    if tokens.parse_token(text) is None:
        raise ValueError("isn't a token of the form orbit_…")
    return text
