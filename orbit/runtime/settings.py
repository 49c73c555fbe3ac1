"""The environment, read once into a frozen record (01-architecture "Configuration", docs/configuration.md).

An empty value counts as unset. Sizes of pools are constants, not settings.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from orbit.domain import limits
from orbit.runtime.setting_values import (
    Address,
    parse_address,
    parse_api_url,
    parse_hint_address,
    parse_lease_ms,
    parse_log_format,
    parse_log_level,
    parse_readable_file,
    parse_retention_days,
    parse_token,
    parse_worker_url,
)
from orbit.runtime.variables import PREFIX, VARIABLES
from orbit.store.dsn import Dsn, parse_dsn

T = TypeVar("T")


class SettingsError(Exception):
    """A variable is invalid; the text is one line that starts with its name and repeats no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a process, valid. Secrets are left out of its text."""

    mysql_dsn: Dsn | None = field(repr=False)
    http_addr: Address
    dispatch_addr: Address
    dispatch_url: str | None
    hint_addr: Address
    metrics_addr: Address | None
    home: Path
    lease_ms: int
    retention_days: int
    tls_cert: Path | None
    tls_key: Path | None
    log_format: str
    log_level: str
    url: str
    token: str | None = field(repr=False)
    credentials_file: Path | None
    worker_url: str | None
    warnings: tuple[str, ...]

    @property
    def renew_ms(self) -> int:
        """Return how often a worker renews its leases, in milliseconds."""
        return self.lease_ms // limits.RENEWALS_PER_LEASE

    def need_dsn(self) -> Dsn:
        """Return the database's address; SettingsError where none is set."""
        if self.mysql_dsn is None:
            raise SettingsError("ORBIT_MYSQL_DSN: must be set, such as mysql://user:password@host:3306/orbit")
        return self.mysql_dsn

    def advertised_dispatch_url(self, port: int) -> str:
        """Return the URL that workers use for this dispatcher, which listens on `port`."""
        if self.dispatch_url is not None:
            return self.dispatch_url
        scheme = "ws" if self.tls_cert is None else "wss"
        host = "127.0.0.1" if self.dispatch_addr.is_wildcard else self.dispatch_addr.host
        return f"{scheme}://{Address(host=host, port=port)}"


def load_settings(environ: Mapping[str, str]) -> Settings:
    """Read and check every variable; raise SettingsError for the first invalid one."""
    read = _Reader(environ)
    settings = Settings(
        mysql_dsn=read.optional("ORBIT_MYSQL_DSN", parse_dsn),
        http_addr=read.required("ORBIT_HTTP_ADDR", parse_address),
        dispatch_addr=read.required("ORBIT_DISPATCH_ADDR", parse_address),
        dispatch_url=read.optional("ORBIT_DISPATCH_URL", parse_worker_url),
        hint_addr=read.required("ORBIT_HINT_ADDR", parse_hint_address),
        metrics_addr=read.optional("ORBIT_METRICS_ADDR", parse_address),
        home=read.required("ORBIT_HOME", Path),
        lease_ms=read.required("ORBIT_LEASE_MS", parse_lease_ms),
        retention_days=read.required("ORBIT_RETENTION_DAYS", parse_retention_days),
        tls_cert=read.optional("ORBIT_TLS_CERT", parse_readable_file),
        tls_key=read.optional("ORBIT_TLS_KEY", parse_readable_file),
        log_format=read.required("ORBIT_LOG_FORMAT", parse_log_format),
        log_level=read.required("ORBIT_LOG_LEVEL", parse_log_level),
        url=read.required("ORBIT_URL", parse_api_url),
        token=read.optional("ORBIT_TOKEN", parse_token),
        credentials_file=read.optional("ORBIT_CREDENTIALS_FILE", Path),
        worker_url=read.optional("ORBIT_WORKER_URL", parse_worker_url),
        warnings=(*_unknown_variables(environ), *_doubts(read)),
    )
    if (settings.tls_cert is None) != (settings.tls_key is None):
        missing = "ORBIT_TLS_CERT" if settings.tls_cert is None else "ORBIT_TLS_KEY"
        raise SettingsError(f"{missing}: certificate and key must be set together")
    return settings


class _Reader:
    """Reads variables by name, with VARIABLES' defaults, and names the one that is invalid."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def text(self, name: str) -> str:
        return self._environ.get(name, "").strip() or VARIABLES[name].default

    def required(self, name: str, parse: Callable[[str], T]) -> T:
        try:
            return parse(self.text(name))
        except ValueError as error:
            raise SettingsError(f"{name}: {error}") from None

    def optional(self, name: str, parse: Callable[[str], T]) -> T | None:
        return self.required(name, parse) if self.text(name) else None


def _unknown_variables(environ: Mapping[str, str]) -> list[str]:
    unknown = sorted(name for name in environ if name.startswith(PREFIX) and name not in VARIABLES)
    lines = []
    for name in unknown:
        close = difflib.get_close_matches(name, VARIABLES, n=1, cutoff=0.8)
        lines.append(f"{name}: unknown variable" + (f"; did you mean {close[0]}?" if close else ""))
    return lines


def _doubts(read: _Reader) -> list[str]:
    address = read.required("ORBIT_DISPATCH_ADDR", parse_address)
    if not address.is_wildcard or read.text("ORBIT_DISPATCH_URL"):
        return []
    return [
        "ORBIT_DISPATCH_URL: unset while ORBIT_DISPATCH_ADDR is a wildcard; only local workers find this process"
    ]
