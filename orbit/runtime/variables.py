"""Every environment variable of Orbit, described once; docs/configuration.md shows the same table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orbit.domain import limits

PREFIX: Final = "ORBIT_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One documented variable: `default` as text ("" = none), `values` with unit and range."""

    default: str
    values: str
    meaning: str


VARIABLES: Final[Mapping[str, Variable]] = {
    "ORBIT_MYSQL_DSN": Variable(
        default="",
        values="`mysql://user:password@host:port/database?unix_socket=…&tls=…&tls_ca=…`",
        meaning="The database. Without it `orbit up` runs a private one under `ORBIT_HOME`; the daemons need it. "
        "`tls` is off, on or verify (default: off on a socket or loopback, else on).",
    ),
    "ORBIT_HTTP_ADDR": Variable(
        default="127.0.0.1:8080",
        values="`host:port`, port 0 to 65,535",
        meaning="Where `orbit-api` listens.",
    ),
    "ORBIT_DISPATCH_ADDR": Variable(
        default="127.0.0.1:8081",
        values="`host:port`, port 0 to 65,535",
        meaning="Where `orbit-dispatch` listens for workers.",
    ),
    "ORBIT_DISPATCH_URL": Variable(
        default="",
        values="`ws://…` or `wss://…`",
        meaning="The URL by which workers reach this `orbit-dispatch`. By default it is made from "
        "`ORBIT_DISPATCH_ADDR`; set it where that address isn't what workers can reach.",
    ),
    "ORBIT_HINT_ADDR": Variable(
        default="127.0.0.1:0",
        values="`address:port` (IP address, no wildcard), port 0 to 65,535",
        meaning="UDP address on which this `orbit-dispatch` hears wake-up hints and by which the others send them. "
        "Lost hints cost milliseconds, never work.",
    ),
    "ORBIT_METRICS_ADDR": Variable(
        default="",
        values="`host:port`; empty: off",
        meaning="Where this process will serve Prometheus metrics, apart from the business port. "
        "Not built yet: no effect.",
    ),
    "ORBIT_HOME": Variable(
        default=".orbit",
        values="directory",
        meaning="What `orbit up` keeps: the private database, its socket, the first credential.",
    ),
    "ORBIT_LEASE_MS": Variable(
        default=str(limits.LEASE_DEFAULT_MS),
        values=f"{limits.LEASE_MIN_MS:,} to {limits.LEASE_MAX_MS:,} ms",
        meaning="How long an attempt stays with a worker that says nothing; workers renew after a third of it.",
    ),
    "ORBIT_RETENTION_DAYS": Variable(
        default=str(limits.RETENTION_DEFAULT_DAYS),
        values=f"0, or {limits.RETENTION_DEFAULT_DAYS} to {limits.RETENTION_MAX_DAYS:,} days; 0: keep everything",
        meaning="How long finished tasks will be kept. Not built yet: nothing is deleted.",
    ),
    "ORBIT_TLS_CERT": Variable(
        default="",
        values="file (PEM)",
        meaning="Certificate chain for HTTPS and WSS; together with `ORBIT_TLS_KEY`.",
    ),
    "ORBIT_TLS_KEY": Variable(
        default="",
        values="file (PEM)",
        meaning="Private key of `ORBIT_TLS_CERT`.",
    ),
    "ORBIT_LOG_FORMAT": Variable(
        default="console",
        values="`console` or `json`",
        meaning="Lines for people, or one JSON object a line; both on standard error.",
    ),
    "ORBIT_LOG_LEVEL": Variable(
        default="info",
        values="`debug`, `info`, `warning` or `error`",
        meaning="The least severe line that is written.",
    ),
    "ORBIT_URL": Variable(
        default="http://127.0.0.1:8080",
        values="`http://…` or `https://…`",
        meaning="Clients and workers: the HTTP API.",
    ),
    "ORBIT_TOKEN": Variable(
        default="",
        values="`orbit_…`",
        meaning="Clients and workers: the bearer token; goes before `ORBIT_CREDENTIALS_FILE`.",
    ),
    "ORBIT_CREDENTIALS_FILE": Variable(
        default="",
        values="file (JSON)",
        meaning="Clients and workers: a file written by `orbit-admin` that holds the token.",
    ),
    "ORBIT_WORKER_URL": Variable(
        default="",
        values="`ws://…` or `wss://…`",
        meaning="Workers: one dispatcher to use instead of those that `GET /v1/dispatchers` names.",
    ),
}
