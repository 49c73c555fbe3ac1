"""Database addresses: `mysql://user:password@host:port/database?unix_socket=…&tls=…`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

_OPTIONS = {"unix_socket", "tls", "tls_ca"}
_TLS_MODES = {"off", "on", "verify"}
_LOOPBACK = {"localhost", "::1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dsn:
    """Where the database is and who asks.

    `tls` is `off`, `on` (encrypt) or `verify` (encrypt and check the certificate against `tls_ca`); `None` means
    the default: off on a socket or loopback, on elsewhere.
    """

    user: str
    password: str = ""
    host: str = "127.0.0.1"
    port: int = 3306
    database: str = ""
    unix_socket: str | None = None
    tls: str | None = None
    tls_ca: str | None = None

    @property
    def tls_mode(self) -> str:
        if self.tls is not None:
            return self.tls
        local = self.unix_socket is not None or self.host in _LOOPBACK or self.host.startswith("127.")
        return "off" if local else "on"

    def text(self) -> str:
        """Return the address with its password; never log it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        options = {
            name: value
            for name, value in (("unix_socket", self.unix_socket), ("tls", self.tls), ("tls_ca", self.tls_ca))
            if value is not None
        }
        query = f"?{urlencode(options)}" if options else ""
        secret = f":{quote(self.password, safe='')}" if self.password else ""
        return f"mysql://{quote(self.user, safe='')}{secret}@{host}:{self.port}/{quote(self.database)}{query}"

    def redacted(self) -> str:
        """Return the address without its password, for messages."""
        return replace(self, password="***" if self.password else "").text()


def parse_dsn(text: str) -> Dsn:
    """Parse an address; raise `ValueError` with one clear line (which never repeats the password)."""
    try:
        parts = urlsplit(text)
        port = parts.port or 3306
    except ValueError as error:
        raise ValueError(f"database address is malformed: {error}") from None
    if parts.scheme not in ("mysql", "mariadb"):
        raise ValueError("database address must start with mysql://")
    if not parts.username:
        raise ValueError("database address names no user")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise ValueError(f"database address has an unknown option: {unknown[0]}")
    tls = options.get("tls")
    if tls is not None and tls not in _TLS_MODES:
        raise ValueError("database address option tls must be off, on or verify")
    return Dsn(
        user=unquote(parts.username),
        password=unquote(parts.password or ""),
        host=parts.hostname or "127.0.0.1",
        port=port,
        database=unquote(parts.path.lstrip("/")),
        unix_socket=options.get("unix_socket"),
        tls=tls,
        tls_ca=options.get("tls_ca"),
    )
