"""Where things are on this machine: the home, addresses that are free to listen on."""

from __future__ import annotations

import errno
import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from orbit.runtime.setting_values import Address


class PortTaken(Exception):
    """Another program listens there; the message says how to choose another port."""


def free_address(wanted: Address, *, option: str, variable: str) -> Address:
    """Return the address if it can be listened on, with a free port in place of 0.

    Raises:
        PortTaken: it can't, and why.
    """
    family = socket.AF_INET6 if ":" in wanted.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((wanted.host, wanted.port))
        except OSError as error:
            why = "is taken" if error.errno == errno.EADDRINUSE else f"can't be used: {error.strerror}"
            raise PortTaken(
                f"port {wanted.port} on {wanted.host} {why}; choose another with {option} or {variable}"
            ) from None
        return wanted.with_port(probe.getsockname()[1])


def client_url(scheme: str, address: Address) -> str:
    """Return the URL by which a client on this machine reaches a listener."""
    host = "127.0.0.1" if address.is_wildcard else address.host
    return f"{scheme}://{Address(host=host, port=address.port)}"


def server_url(environ: Mapping[str, str]) -> str:
    """Return ORBIT_URL, else where the `orbit up` of this home listens, else the default."""
    if environ.get("ORBIT_URL"):
        return environ["ORBIT_URL"]
    with suppress(OSError, ValueError, KeyError):
        return str(json.loads((home_of(environ) / "up.json").read_text(encoding="utf-8"))["url"])
    return "http://127.0.0.1:8080"


def home_of(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("ORBIT_HOME") or ".orbit")
